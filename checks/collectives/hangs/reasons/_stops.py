"""A flag by which a framework ends the training, or evaluates, set on some ranks alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import StopAsked

if TYPE_CHECKING:
    from ddpdoctor.check import Position, Progress, Training


MEETS = frozenset({"should_evaluate", "should_log"})
"""Flags of one step, which the framework takes back: the ranks meet after it, and the training goes on."""


class StopOfSome(NamedTuple):
    """The flag as one rank has set it, and a rank that has gone on training without it."""

    rank: int
    asked: StopAsked
    other: int


def stop_of_some_ranks(ranks: Sequence[Position | Progress], training: Training) -> StopOfSome | None:
    """Find a rank that has set the flag and begun no step since, and one that never has, and is further by now."""
    asks = [each for each in training.of(StopAsked) if each.rank is not None]
    first = {each.rank: each for each in reversed(asks) if each.flag not in MEETS}
    for one in ranks:
        asked = first.get(one.rank)
        if asked is None:
            continue
        for other in ranks:
            further = other.forwards > max(asked.forwards, one.forwards) or _is_in_next_step(one, other, asked)
            if other.rank not in first and further:
                return StopOfSome(one.rank, asked, other.rank)
    return _meeting_of_some(ranks, [each for each in asks if each.flag in MEETS])


def _is_in_next_step(one: Position | Progress, other: Position | Progress, asked: StopAsked) -> bool:
    """Whether a rank has made the step of the flag too, and calls what the one that set it does not.

    The transformers Trainer counts the items of the next batches over all ranks before their forward.
    """
    if not one.recent or not other.recent or min(one.steps, other.steps) < asked.steps:
        return False
    ours, theirs = one.recent[-1], other.recent[-1]
    return (ours.operation, ours.shapes) != (theirs.operation, theirs.shapes)


def _meeting_of_some(ranks: Sequence[Position | Progress], asks: Sequence[StopAsked]) -> StopOfSome | None:
    """Find a rank that has made no step since it set such a flag, and one that has begun the next step without it."""
    asked = {(each.rank, each.flag, each.steps) for each in asks}
    last = {each.rank: each for each in asks}
    for one in ranks:
        flag = last.get(one.rank)
        if flag is None or one.steps != flag.steps:
            continue
        for other in ranks:
            without = other.rank != one.rank and (other.rank, flag.flag, flag.steps) not in asked
            if without and other.steps == flag.steps and other.forwards > flag.forwards:
                return StopOfSome(one.rank, flag, other.rank)
    return None
