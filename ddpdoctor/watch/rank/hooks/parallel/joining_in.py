"""torch's Join, in which a rank that has no batch left answers the others: who enters it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ddpdoctor.on_import import Awaited, when_imported
from ddpdoctor.watch.events import JoinEntered
from ddpdoctor.watch.rank.patch import patch

if TYPE_CHECKING:
    from types import ModuleType

    from ddpdoctor.watch.rank.recorder import Recorder

MODULE = "torch.distributed.algorithms.join"


def hook(recorder: Recorder) -> list[Awaited]:
    """Replace what enters it, once imported: DDP's own ``join()`` goes through it as well."""
    told: set[int] = set()

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def __enter__(join: Any) -> Any:  # noqa: N807 - it stands in for one
            if recorder.is_rank and not told:
                told.add(1)
                recorder.safely(_tell, recorder, join)
            return original(join)

        return __enter__

    def of_module(module: ModuleType) -> None:
        recorder.late.append(patch(module.Join, "__enter__", wrap))

    return [when_imported(MODULE, of_module)]


def _tell(recorder: Recorder, join: Any) -> None:
    import torch.distributed as dist

    recorder.emit(JoinEntered, group=tuple(dist.get_process_group_ranks(join._process_group)))  # noqa: SLF001
