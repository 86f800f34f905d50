"""Horovod: its ranks join no process group of torch's, and its optimizer averages the gradients within its step."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ddpdoctor.frameworks import HOROVOD
from ddpdoctor.on_import import Awaited, when_imported
from ddpdoctor.watch.events import FrameworkSeen, Joined
from ddpdoctor.watch.rank.compared.gradients import elements_of, tensors_in
from ddpdoctor.watch.rank.patch import patch
from ddpdoctor.watch.user_frames import user_site

if TYPE_CHECKING:
    from types import ModuleType

    from ddpdoctor.watch.rank.frameworks.horovod import Horovod
    from ddpdoctor.watch.rank.patch import Wrap
    from ddpdoctor.watch.rank.recorder import Recorder

MODULE = "horovod.torch"
BACKEND = "horovod"
OPERATIONS = {
    "_allreduce_async": "all_reduce",
    "_grouped_allreduce_async": "all_reduce",
    "_allgather_async": "all_gather",
    "_grouped_allgather_async": "all_gather",
    "_broadcast_async": "broadcast",
    "_alltoall_async": "all_to_all",
    "_reducescatter_async": "reduce_scatter",
    "_grouped_reducescatter_async": "reduce_scatter",
    "barrier": "barrier",
    "join": "join",
}
"""What every communication goes through, and what torch calls it; versions lack some of them."""
UNORDERED = ""
"""The group of all of them: ranks match what they send by names, and not by its order."""
AVERAGES = "all_reduce of the gradients"


def hook(recorder: Recorder) -> list[Awaited]:
    """Replace what joins, leaves, communicates and steps, once the user has imported Horovod."""

    def of_module(module: ModuleType) -> None:
        recorder.safely(_replace, recorder, module)

    return [when_imported(MODULE, of_module)]


def _replace(recorder: Recorder, module: Any) -> None:
    for name, wrap in (("init", _joining(recorder, module)), ("shutdown", _leaving(recorder))):
        recorder.late.append(patch(module, name, wrap))
    operations, steps = module.mpi_ops, module.optimizer
    for name, operation in OPERATIONS.items():
        for owner in (operations, module):
            if name in vars(owner):
                recorder.late.append(patch(owner, name, _communicating(recorder, operation)))
    optimizer = steps._DistributedOptimizer  # noqa: SLF001 - whose functions each DistributedOptimizer gets
    recorder.late += [
        patch(optimizer, "synchronize", _averaging(recorder)),
        patch(optimizer, "step", _stepping(recorder.horovod)),
        patch(module, "broadcast_optimizer_state", _preparing(recorder.horovod)),
    ]


def _joining(recorder: Recorder, module: Any) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def init(*args: Any, **kwargs: Any) -> Any:
            recorder.safely(_enter, recorder)
            try:
                result = original(*args, **kwargs)
            except Exception as exc:
                recorder.explain(exc)
                raise
            recorder.safely(_joined, recorder, module)
            return result

        return init

    return wrap


def _enter(recorder: Recorder) -> None:
    rank, size = (os.environ.get(f"HOROVOD_{each}", "") for each in ("RANK", "SIZE"))
    meets = (os.environ.get(f"HOROVOD_GLOO_RENDEZVOUS_{each}", "") for each in ("ADDR", "PORT"))
    recorder.joining(
        int(rank) if rank.isdecimal() else -1,
        world_size=int(size) if size.isdecimal() else -1,
        backend=BACKEND,
        address=":".join(filter(None, meets)),
    )


def _joined(recorder: Recorder, module: Any) -> None:
    recorder.has_joined = True
    recorder.become_rank(module.rank())
    recorder.emit(Joined, world_size=module.size(), backend=BACKEND)
    recorder.emit(FrameworkSeen, framework=HOROVOD.name, wraps=False, asked="")


def _leaving(recorder: Recorder) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def shutdown(*args: Any, **kwargs: Any) -> Any:
            recorder.safely(recorder.left)
            return original(*args, **kwargs)

        return shutdown

    return wrap


def _communicating(recorder: Recorder, operation: str) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def communicate(*args: Any, **kwargs: Any) -> Any:
            if recorder.is_rank:
                recorder.safely(_record, recorder, operation, args)
            return original(*args, **kwargs)

        return communicate

    return wrap


def _record(recorder: Recorder, operation: str, args: tuple[Any, ...]) -> None:
    """Record what one rank sends; the gradients, in whichever order they come, are told as one when it awaits them."""
    site = user_site()
    tensors = list(tensors_in(args[0])) if args else []
    recorder.exchanges.communicated(operation, args, tensors, elements_of(tensors), site)
    if recorder.evaluations.open:
        recorder.evaluations.communicated(operation, None, args, site)
    if not recorder.exchanges.in_backward and not recorder.horovod.stepping:
        shape = getattr(args[0], "shape", None) if args else None
        said = "" if shape is None else str(list(shape))
        recorder.writer.communication(time.time(), operation, UNORDERED, said, site)


def _await_gradients(recorder: Recorder) -> None:
    recorder.writer.communication(time.time(), AVERAGES, UNORDERED, "", user_site())


def _averaging(recorder: Recorder) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def synchronize(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            if recorder.is_rank:
                recorder.safely(_await_gradients, recorder)
            return original(optimizer, *args, **kwargs)

        return synchronize

    return wrap


def _stepping(horovod: Horovod) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            horovod.stepping.add(optimizer)
            try:
                return original(optimizer, *args, **kwargs)
            finally:
                horovod.stepping.discard(optimizer)

        return step

    return wrap


def _preparing(horovod: Horovod) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def broadcast_optimizer_state(*args: Any, **kwargs: Any) -> Any:
            horovod.prepares = True
            try:
                return original(*args, **kwargs)
            finally:
                horovod.prepares = False

        return broadcast_optimizer_state

    return wrap
