"""Schedules of learning rates: how many steps they were made for, and how many they have made at the end."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddpdoctor.frameworks import LIGHTNING
from ddpdoctor.watch.events import ScheduleAtEnd
from ddpdoctor.watch.rank.hooks.written import lengths_written
from ddpdoctor.watch.rank.patch import Patch, Wrap, patch
from ddpdoctor.watch.user_frames import frames, user_site, variables_of

if TYPE_CHECKING:
    from ddpdoctor.watch.events import Site
    from ddpdoctor.watch.rank.recorder import Recorder

MOST = 8  # schedules
NUMBERS = 16
FEWEST = 8  # steps of a schedule that is looked at
LENGTHS = ("T_max", "total_steps", "total_iters")


@dataclass(slots=True)
class Schedule:
    """One schedule: the numbers that it can be as long as, and the steps made; ``site`` is the first of them."""

    kind: str
    lengths: tuple[int, ...]
    site: Site | None
    began: int
    optimizer: int
    made: int = 0
    planned: int = 0


def hook(recorder: Recorder) -> list[Patch]:
    """Replace the step that schedulers inherit."""
    from torch.optim.lr_scheduler import LRScheduler

    known: dict[int, Schedule] = {}
    told: list[Schedule] = []
    recorder.last_looks.append(lambda: _tell(recorder, told))
    return [patch(LRScheduler, "step", _stepping(recorder, known, told))]


def _stepping(recorder: Recorder, known: dict[int, Schedule], told: list[Schedule]) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def step(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            schedule = known.get(id(scheduler))  # by identity: a user's class can do without a hash
            if schedule is not None:
                schedule.made += 1
            elif recorder.is_rank and recorder.models.any() and len(told) < MOST:
                recorder.safely(_begin, recorder, scheduler, known, told)
            return original(scheduler, *args, **kwargs)

        return step

    return wrap


def _begin(recorder: Recorder, scheduler: Any, known: dict[int, Schedule], told: list[Schedule]) -> None:
    if scheduler.last_epoch < 0:  # the first, which __init__ makes
        return
    lengths = dict.fromkeys(each for each in _lengths(scheduler) if type(each) is int and each >= FEWEST)
    number = recorder.number("optimizer", scheduler.optimizer)
    kind, began = type(scheduler).__name__, scheduler.last_epoch
    schedule = Schedule(kind, tuple(lengths)[:NUMBERS], user_site(), began, number, 1, _planned())
    known[id(scheduler)] = schedule
    weakref.finalize(scheduler, known.pop, id(scheduler), None).atexit = False
    if schedule.lengths:
        told.append(schedule)


def _planned() -> int:
    """Return how many steps the Trainer of Lightning is to make that steps a schedule just now; 0 without one."""
    for frame in frames():
        if str(frame.f_globals.get("__name__", "")).startswith(LIGHTNING.modules):
            trainer = getattr(variables_of(frame).get("self"), "trainer", None)
            planned = getattr(trainer, "estimated_stepping_batches", 0)
            if isinstance(planned, int) and planned:
                return planned
    return 0


def _lengths(scheduler: Any) -> Iterator[Any]:
    held = vars(scheduler)
    yield from (held.get(name) for name in LENGTHS)
    for function in held.get("lr_lambdas", ()):
        written = lengths_written(function)
        yield from _closed_over(function) if written is None else written


def _closed_over(function: Any) -> Iterator[Any]:
    """Yield what a function was made with: variables around it, what partial() has given it, attributes."""
    if isinstance(function, functools.partial):
        yield from (*function.args, *function.keywords.values(), *_closed_over(function.func))
        return
    for cell in getattr(function, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:  # nothing was assigned yet
            continue
    if not hasattr(function, "__code__"):
        yield from getattr(function, "__dict__", {}).values()


def _tell(recorder: Recorder, told: list[Schedule]) -> None:
    for each in told:
        recorder.emit(
            ScheduleAtEnd,
            kind=each.kind,
            lengths=each.lengths,
            began=each.began,
            made=each.made,
            optimizer=each.optimizer,
            planned=each.planned,
            site=each.site,
        )
    told.clear()
