"""What is kept of a log: the records that a pattern matches, with a bound on how many; all of them are counted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddpdoctor.explain.reader import Reader
from ddpdoctor.explain.records import Log, Record

if TYPE_CHECKING:
    from ddpdoctor.explain.finder import Finder
    from ddpdoctor.explain.sources import Origin

ALIKE = 40  # records of one rank that the same patterns match: the first ones are kept
MOST = 50_000  # records altogether
Patterns = tuple["re.Pattern[str]", ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """The log as signs see it, which of its records each pattern matches, and how often it matched in all."""

    log: Log
    matched: Mapping[re.Pattern[str], tuple[int, ...]]
    counts: Mapping[re.Pattern[str], int]
    lines: int


@dataclass(slots=True)
class Keeper:
    """Reads sources, one after the other or by turns, and keeps what matters."""

    finder: Finder
    _records: list[tuple[Record, Patterns]] = field(default_factory=list)
    _alike: Counter[tuple[Patterns, str, int | None]] = field(default_factory=Counter)
    _counts: Counter[re.Pattern[str]] = field(default_factory=Counter)
    _readers: list[Reader] = field(default_factory=list)

    def reader(self, origin: Origin) -> Reader:
        """Begin a source."""
        self._readers.append(Reader(origin, self.finder))
        return self._readers[-1]

    def keep(self, records: Iterator[Record]) -> None:
        """Take what a reader gives."""
        for record in records:
            matching = self.finder.matching(record.text)
            self._counts.update(matching)
            if not matching and not record.error:
                continue
            alike = matching, record.error, record.rank
            self._alike[alike] += 1
            if self._alike[alike] <= ALIKE and len(self._records) < MOST:
                self._records.append((record, matching))

    def kept(self) -> Kept:
        """Give all that was kept, in order."""
        ordered = _in_order(self._records)
        matched: dict[re.Pattern[str], list[int]] = {}
        for position, (_, matching) in enumerate(ordered):
            for pattern in matching:
                matched.setdefault(pattern, []).append(position)
        return Kept(
            Log(tuple(record for record, _ in ordered)),
            {pattern: tuple(positions) for pattern, positions in matched.items()},
            dict(self._counts),
            sum(reader.lines for reader in self._readers),
        )


def _in_order(pairs: list[tuple[Record, Patterns]]) -> list[tuple[Record, Patterns]]:
    """Sort the records of all sources by time; one without a time stands where it stood, after its neighbour."""
    latest: dict[str, float] = {}
    times: list[float] = []
    for record, _ in pairs:
        before = latest.get(record.source, float("-inf"))
        latest[record.source] = before if record.time is None else max(record.time, before)
        times.append(latest[record.source] if record.time is None else record.time)
    if len(latest) < 2:  # noqa: PLR2004 - one source is in its own order
        return pairs
    return [pair for _, pair in sorted(zip(times, pairs, strict=True), key=lambda each: each[0])]
