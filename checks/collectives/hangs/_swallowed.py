"""An exception that was raised on one rank only, and after which that rank has gone on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import ErrorSeen, Failed

if TYPE_CHECKING:
    from ddpdoctor.check import Position, Progress, Site, Training


class Swallowed(NamedTuple):
    """The rank that went on, the error, how often; a rank that had fewer of it, and how many."""

    rank: int
    error: ErrorSeen
    times: int
    other: int
    others: int


def swallowed(ranks: Iterable[Position | Progress], training: Training) -> Swallowed | None:
    """Find an error at a line that one rank has caught more often than another one."""
    caught = {each.rank: _caught(each, training) for each in ranks}
    counts = {rank: Counter(map(_key, errors)) for rank, errors in caught.items()}
    for rank, errors in caught.items():
        for error in errors:
            times = counts[rank][_key(error)]
            fewest = min(counts, key=lambda other: counts[other][_key(error)])
            if counts[fewest][_key(error)] < times:
                return Swallowed(rank, error, times, fewest, counts[fewest][_key(error)])
    return None


def _key(error: ErrorSeen) -> tuple[str, Site | None]:
    return error.error, error.site


def _caught(rank: Position | Progress, training: Training) -> list[ErrorSeen]:
    """Return the errors after which a rank has begun something more: another forward, or a communication."""
    left = [each.time for each in training.of(Failed, rank=rank.rank)]
    last = max((each.time for each in rank.recent), default=0.0)
    return [
        each
        for each in training.of(ErrorSeen, rank=rank.rank)
        if _went_on(rank, each, last) and not any(abs(each.time - time) < 1 for time in left)
    ]


def _went_on(rank: Position | Progress, error: ErrorSeen, last: float) -> bool:
    """Whether a rank has begun something more; after one that the script has printed, a forward shows nothing."""
    if error.shown:
        return rank.forwards == error.forwards and last > error.time
    return rank.forwards > error.forwards or last > error.time
