"""Hosts whose clocks stand in different time zones, told by when the log of each begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

HALF_HOUR = 1800  # of which nearly all time zones are multiples
NEAREST = 3600  # seconds; whoever comes half an hour late to init_process_group meets nobody
FARTHEST = 26 * 3600  # from UTC-12 to UTC+14
TOGETHER = 180  # seconds in which a launcher starts the hosts of a training


@dataclass(frozen=True, slots=True)
class Start:
    """When a source begins, by its own clock; ``zoned`` where it names the zone."""

    source: str
    node: str | None
    seconds: float
    zoned: bool


def ahead(starts: Iterable[Start]) -> Mapping[str, float]:
    """Return the seconds by which the clock of a source is ahead, for those whose hosts are in another zone.

    The hosts of a training start together, so the logs of two hosts that seem to begin whole hours apart have clocks
    of different zones. Files of one host have one clock, and can be of several attempts: the first of them counts.
    """
    known = [start for start in starts if start.node is not None]
    began: dict[tuple[str | None, bool], float] = {}
    for start in known:
        clock = start.node, start.zoned
        began[clock] = min(start.seconds, began.get(clock, start.seconds))
    zoned = [seconds for (_, names_zone), seconds in began.items() if names_zone]
    reference = min(zoned) if zoned else next(iter(began.values()), 0.0)
    return {start.source: _zone(began[start.node, False] - reference) for start in known if not start.zoned}


def _zone(gap: float) -> float:
    """Return the difference of time zones that explains a gap; 0 where none does."""
    zone = round(gap / HALF_HOUR) * HALF_HOUR
    return zone if NEAREST <= abs(zone) <= FARTHEST and abs(gap - zone) <= TOGETHER else 0.0
