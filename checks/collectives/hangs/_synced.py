"""A metric that Lightning reduces over the ranks, logged on some of them alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import MetricSynced, batch_condition

from .source._one_rank import condition

if TYPE_CHECKING:
    from ddpdoctor.check import Position, Progress, Training


class Synced(NamedTuple):
    """The rank that has logged it, where, and what lets it alone come there; a rank that never has."""

    rank: int
    logged: MetricSynced
    guard: str
    other: int


def synced_by_some(ranks: Sequence[Position | Progress], training: Training) -> Synced | None:
    """Find a key that one rank has logged, under a condition, and another has not.

    Without a condition around its line the other rank can be on its way to it.
    """
    seen = {each.rank for each in ranks}
    names = {rank: {each.name for each in training.of(MetricSynced, rank=rank)} for rank in seen}
    for rank in sorted(seen):
        for logged in training.of(MetricSynced, rank=rank):
            other = next((each for each in sorted(seen) if logged.name not in names[each]), None)
            if other is None or logged.site is None:
                continue
            if guard := condition(logged.site) or batch_condition(logged.site.file, logged.site.line):
                return Synced(rank, logged, guard, other)
    return None
