"""Every communication that Python begins: what, in which group, with what, from which line."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.events import PassedOver
from ddpdoctor.watch.rank.compared.gradients import elements_of, tensors_in
from ddpdoctor.watch.rank.patch import Patch, Wrap, patch
from ddpdoctor.watch.user_frames import user_site

if TYPE_CHECKING:
    from ddpdoctor.watch.events import Site
    from ddpdoctor.watch.rank.recorder import Recorder

# The methods of torch's ProcessGroup, as its Python functions call them, and how users know them. The names of
# several torch versions: those that the installed one does not have are skipped.
OPERATIONS = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce_coalesced",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "allgather": "all_gather",
    "_allgather_base": "all_gather_into_tensor",
    "all_gather_single": "all_gather_into_tensor",
    "allgather_coalesced": "all_gather_coalesced",
    "allgather_into_tensor_coalesced": "all_gather_into_tensor",
    "gather": "gather",
    "scatter": "scatter",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "reduce_scatter_single": "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_tensor",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all_single",
    "all_to_all_single": "all_to_all_single",
    "barrier": "barrier",
    "monitored_barrier": "monitored_barrier",
    "send": "send",
    "recv": "recv",
    "recv_anysource": "recv",
}

# What point-to-point functions give is waited for by the other side; a barrier has no result.
NO_RESULT = {"send", "recv", "barrier", "monitored_barrier"}
ROOTED = {"broadcast", "reduce", "gather", "scatter"}
MOST = 20  # lines that are told
MOST_SPLITS = 64  # ranks whose rows are told
TOLD = {"": "", "float32": "", **dict.fromkeys(("bool", "int8", "uint8"), " bytes")}
"""How dtypes are told: what nearly all have is left out, those of one byte are sent alike."""
ASKS = ("is_completed", "is_success", "get_future", "get_future_result", "result", "synchronize",
        "block_current_stream", "exception", "boxed")  # fmt: skip


def hook(recorder: Recorder) -> list[Patch]:
    """Replace the methods of ProcessGroup and of Work, whatever name a script bound torch's functions to."""
    import torch.distributed as dist
    import torch.distributed.distributed_c10d as c10d

    patches = [
        patch(dist.ProcessGroup, method, _communication(recorder, name))
        for method, name in OPERATIONS.items()
        if hasattr(dist.ProcessGroup, method)
    ]
    patches += [patch(dist.Work, method, _asked(recorder)) for method in ASKS if hasattr(dist.Work, method)]
    patches.append(patch(dist.Work, "wait", _waited(recorder)))
    if hasattr(c10d, "_warn_not_in_group"):
        patches.append(patch(c10d, "_warn_not_in_group", _passed_over(recorder)))
    if hasattr(c10d, "_object_to_tensor"):  # pickles what the collectives of objects are given, before they begin
        patches.append(patch(c10d, "_object_to_tensor", _pickled(recorder)))
    return patches


def _communication(recorder: Recorder, operation: str) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def communicate(group: Any, *args: Any, **kwargs: Any) -> Any:
            if not recorder.is_rank:
                if recorder.inherited is not None:
                    recorder.safely(recorder.inherited.communicates, operation, group)
                return original(group, *args, **kwargs)
            site = user_site()
            recorder.safely(_record, recorder, operation, group, args, site)
            try:
                work = original(group, *args, **kwargs)
            except Exception as exc:
                recorder.explain(exc, step=True)
                raise
            if operation not in NO_RESULT:
                recorder.safely(recorder.handles.began, work, operation, group, site, args[0] if args else ())
            return work

        return communicate

    return wrap


def _pickled(recorder: Recorder) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def _object_to_tensor(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            except Exception as exc:
                if recorder.is_rank:
                    recorder.explain(exc, step=True)
                raise

        return _object_to_tensor

    return wrap


def _passed_over(recorder: Recorder) -> Wrap:
    told: set[Site | None] = set()

    def tell(operation: str) -> None:
        site = user_site()
        if recorder.is_rank and site not in told and len(told) < MOST:
            told.add(site)
            recorder.emit(PassedOver, operation=operation, site=site)

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def warn(*args: Any, **kwargs: Any) -> Any:
            recorder.safely(tell, str(args[0]) if args else "")
            return original(*args, **kwargs)

        return warn

    return wrap


def _asked(recorder: Recorder) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def ask(work: Any, *args: Any, **kwargs: Any) -> Any:
            recorder.handles.touched(work)
            return original(work, *args, **kwargs)

        return ask

    return wrap


def _waited(recorder: Recorder) -> Wrap:
    def around(original: Callable[..., Any]) -> Callable[..., Any]:
        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:  # a name that the monitor finds in stacks
            recorder.handles.touched(work)
            return original(work, *args, **kwargs)

        return wait

    return around


def _record(recorder: Recorder, operation: str, group: Any, args: tuple[Any, ...], site: Site | None) -> None:
    if (handled := sys.exc_info()[1]) is not None:
        recorder.failures.handles(handled)
    shapes = _shapes(args[0]) if args else ""
    if operation in {"send", "recv"} and len(args) > 1 and isinstance(args[1], int):
        shapes = f"{shapes} {'to' if operation == 'send' else 'from'} {args[1]}"
        if len(args) > 2 and isinstance(args[2], int) and args[2]:  # noqa: PLR2004 - tensors, the other rank, the tag
            shapes += f", tag {args[2]}"
    if operation == "all_to_all_single" and not recorder.writer.is_full:
        shapes += _splits(args)
    if operation in ROOTED:
        roots = [each.rootRank for each in args[1:] if hasattr(each, "rootRank")]
        shapes += f", root {roots[0]}" if roots else ""
    recorder.writer.communication(time.time(), operation, group.group_name, shapes, site)
    tensors = list(tensors_in(args[0])) if args else []
    elements = elements_of(tensors)
    recorder.models.communicated(operation, tensors, elements, early=recorder.early)
    recorder.exchanges.communicated(operation, args, tensors, elements, site)
    recorder.updates.sends()
    if recorder.evaluations.open:
        recorder.evaluations.communicated(operation, group, args, site)
    recorder.sums.communicated(operation, group, args)
    recorder.aliases.communicated(operation, args, site)


def _splits(args: tuple[Any, ...]) -> str:
    """Return how many rows a rank takes from each other rank, and gives each; nothing where all are as many."""
    given = [each for each in args[2:4] if isinstance(each, (list, tuple)) and len(each) <= MOST_SPLITS]
    return f", takes {list(given[0])}, gives {list(given[1])}" if len(given) == 2 and all(given) else ""  # noqa: PLR2004


def _shapes(given: Any) -> str:
    """Return what a rank gives: ``[3, 4]``, ``[3, 4] int64``, or several; a long list by its first and its length."""
    if isinstance(given, (list, tuple)):
        said = [_shapes(each) for each in given[:3]]
        return ", ".join(said) + (f" and {len(given) - 3} more" if len(given) > 3 else "")  # noqa: PLR2004 - as above
    if not hasattr(given, "shape"):
        return ""
    dtype = str(getattr(given, "dtype", "")).rpartition(".")[2]
    return f"{list(given.shape)}{TOLD.get(dtype, f' {dtype}')}"
