"""Schedules of torch.distributed.pipelining: into how many microbatches each rank cuts its batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ddpdoctor.on_import import Awaited, when_imported
from ddpdoctor.watch.events import PipelineScheduled
from ddpdoctor.watch.rank.patch import Wrap, patch

if TYPE_CHECKING:
    from types import ModuleType

    from ddpdoctor.watch.rank.recorder import Recorder

SCHEDULES = "torch.distributed.pipelining.schedules"
KINDS = ("PipelineScheduleSingle", "PipelineScheduleMulti")
MOST = 8  # schedules that are told


def hook(recorder: Recorder) -> list[Awaited]:
    """Replace the construction of schedules, of one stage and of several, once they are imported."""

    def of_schedules(module: ModuleType) -> None:
        for kind in KINDS:
            if hasattr(module, kind):
                recorder.late.append(patch(getattr(module, kind), "__init__", _making(recorder)))

    return [when_imported(SCHEDULES, of_schedules)]


def _making(recorder: Recorder) -> Wrap:
    made: list[int] = []

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def make(schedule: Any, *args: Any, **kwargs: Any) -> None:
            original(schedule, *args, **kwargs)
            if recorder.is_rank and len(made) < MOST:
                recorder.safely(_tell, recorder, made, schedule)

        return make

    return wrap


def _tell(recorder: Recorder, made: list[int], schedule: Any) -> None:
    import torch.distributed as dist

    stages = getattr(schedule, "_stages", None) or [schedule._stage]  # noqa: SLF001 - it has no other way to say it
    group = tuple(dist.get_process_group_ranks(stages[0].group or dist.group.WORLD))
    made.append(schedule._n_microbatches)  # noqa: SLF001 - as above
    recorder.emit(
        PipelineScheduled, number=len(made), schedule=type(schedule).__name__, microbatches=made[-1], group=group
    )
