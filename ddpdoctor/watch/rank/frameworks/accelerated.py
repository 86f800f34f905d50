"""Accelerate: ranks taken for the only one, rows that fill up a last batch, a learning rate at 0 too early."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.events import PaddingGathered, ScheduleEnded, TakenForOne
from ddpdoctor.watch.user_frames import calling_package, user_site

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.model.models import ProcessWithModels
    from ddpdoctor.watch.rank.patch import Wrap

IDLE = 5  # steps at a learning rate of 0, at least
PART = 0.2  # of all steps so far: a schedule that ends a little early wastes nothing


@dataclass(slots=True)
class Schedule:
    """How often a scheduler was stepped, and how often since its learning rates have come to 0."""

    calls: int = 0
    idle: int = 0
    rose: bool = False


@dataclass(slots=True)
class Accelerated:
    """What was told, and what is known of each scheduler, by identity."""

    recorder: ProcessWithModels
    told: set[str] = field(default_factory=set)
    schedules: dict[int, Schedule] = field(default_factory=dict)

    def hooks(self) -> list[tuple[str, Wrap]]:
        """Return what is to be hooked, by its full name."""
        return [
            ("accelerate.accelerator.Accelerator.gather", self._after("padding", self._gathered)),
            ("accelerate.accelerator.Accelerator.prepare", self._after("alone", self._prepared)),
            ("accelerate.scheduler.AcceleratedScheduler.step", self._after("schedule", self._stepped)),
        ]

    def forget(self) -> None:
        """Begin anew in a child that was forked."""
        self.told.clear()
        self.schedules.clear()

    def _after(self, subject: str, look: Callable[..., None]) -> Wrap:
        """Return what looks at a method's arguments and result, until its subject was told."""

        def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
            def method(*args: Any, **kwargs: Any) -> Any:
                result = original(*args, **kwargs)
                if self.recorder.is_rank and subject not in self.told:
                    self.recorder.safely(look, result, *args, *kwargs.values())
                return result

            return method

        return wrap

    def _gathered(self, gathered: Any, _: Any, given: Any) -> None:
        """Look whether a last batch of an evaluation was gathered with what fills it up."""
        loader = _loader_at_its_end()
        if loader is None or self.recorder.models.training() or calling_package():
            return
        whole, kept = loader.total_batch_size, loader.remainder
        rows, come = _rows(given), _rows(gathered)
        if not isinstance(kept, int) or not 0 < kept < whole or come != whole or not rows or rows < 2:  # noqa: PLR2004
            return  # of one row nobody can tell whether it is a sample, or a figure of the batch
        self.told.add("padding")
        self.recorder.emit(PaddingGathered, rows=whole, kept=kept, samples=len(loader.dataset))

    def _prepared(self, *_: Any) -> None:
        """Look whether Accelerate takes each rank of a group for the only one, as it does where it finds no device."""
        import torch.distributed as dist

        self.told.add("alone")
        if dist.is_initialized() and dist.get_world_size() > 1 and _ranks() == 1:
            self.recorder.emit(TakenForOne, world_size=dist.get_world_size(), site=user_site())

    def _stepped(self, _: Any, scheduler: Any, *_given: Any) -> None:
        """Look whether a schedule of which each step makes several has come to its end before the training has."""
        ranks = _ranks()
        if scheduler.split_batches or not scheduler.step_with_optimizer or ranks < 2:  # noqa: PLR2004 - one is alone
            self.told.add("schedule")
            return
        seen = self.schedules.setdefault(id(scheduler), Schedule())
        seen.calls += 1
        ended = not any(scheduler.get_last_lr())
        seen.rose |= not ended
        seen.idle = seen.idle + 1 if ended and seen.rose else 0
        if seen.idle > max(IDLE, PART * seen.calls):
            self.told.add("schedule")
            self.recorder.emit(ScheduleEnded, made=seen.calls, idle=seen.idle, ranks=ranks)


def _loader_at_its_end() -> Any:
    """Return the loader that Accelerate is going through, where its last batch was given; None elsewhere."""
    state = sys.modules["accelerate.state"].GradientState()
    return state.active_dataloader if state.end_of_dataloader else None


def _ranks() -> int:
    shared = sys.modules["accelerate.state"].PartialState._shared_state  # noqa: SLF001 - to make one would begin a group
    return int(shared.get("num_processes", 1))


def _rows(given: Any) -> int:
    """Return how many rows the first tensor has of what may hold several; 0 where there is none."""
    import torch

    if isinstance(given, torch.Tensor):
        return given.shape[0] if given.dim() else 0
    parts = given.values() if isinstance(given, dict) else given if isinstance(given, list | tuple) else ()
    return next((rows for rows in map(_rows, parts) if rows), 0)
