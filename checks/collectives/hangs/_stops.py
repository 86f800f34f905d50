"""A flag by which a framework ends the training, set on some ranks alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import StopAsked

if TYPE_CHECKING:
    from ddpdoctor.check import Position, Progress, Training


class StopOfSome(NamedTuple):
    """The flag as one rank has set it, and a rank that has gone on training without it."""

    rank: int
    asked: StopAsked
    other: int


def stop_of_some_ranks(ranks: Sequence[Position | Progress], training: Training) -> StopOfSome | None:
    """Find a rank that has set the flag and begun no step since, and one that never has, and is further by now."""
    first = {each.rank: each for each in reversed(training.of(StopAsked)) if each.rank is not None}
    for one in ranks:
        asked = first.get(one.rank)
        if asked is None:
            continue
        for other in ranks:
            if other.rank not in first and other.forwards > asked.forwards and other.forwards > one.forwards:
                return StopOfSome(one.rank, asked, other.rank)
    return None
