"""What is kept of a log: the records that a pattern matches, with a bound on how many; all of them are counted."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ddpdoctor.facets import Pattern
from ddpdoctor.logs.read.clock import is_dated, nearest
from ddpdoctor.logs.read.clock_offsets import Start, ahead
from ddpdoctor.logs.read.reader import Reader
from ddpdoctor.logs.records import Log, Record
from ddpdoctor.logs.rewording import in_english, unbroken

if TYPE_CHECKING:
    from ddpdoctor.logs.read.jobs import Jobs
    from ddpdoctor.logs.read.lines import Line
    from ddpdoctor.logs.read.sources import Origin
    from ddpdoctor.logs.search.finder import Finder

ALIKE = 40  # records of one rank that the same patterns match: the first ones are kept
MOST = 50_000  # records altogether
Patterns = tuple[Pattern, ...]
Alike = tuple[Patterns, str, int | None]


@dataclass(frozen=True, slots=True)
class MatchedLog:
    """The log as log patterns see it, which of its records each pattern matches, and how often it matched in all."""

    log: Log
    matched: Mapping[Pattern, tuple[int, ...]]
    counts: Mapping[Pattern, int]
    lengths: Mapping[str, int] = field(default_factory=dict)
    """How many lines each source has."""
    endings: Mapping[str, tuple[Line, ...]] = field(default_factory=dict)
    """The last lines of each source."""
    statuses: Mapping[int | None, int] = field(default_factory=dict)
    """The exit status of each rank that torchrun saw failing; negative for a signal."""
    failed_first: frozenset[int] = frozenset()
    """The ranks that torchrun saw failing first, those of its own host."""


@dataclass(slots=True)
class RecordBuffer:
    """Reads sources, one after the other or by turns, and keeps what matters."""

    finder: Finder
    _records: list[tuple[Record, Patterns]] = field(default_factory=list)
    _alike: Counter[Alike] = field(default_factory=Counter)
    _counts: Counter[Pattern] = field(default_factory=Counter)
    _readers: list[Reader] = field(default_factory=list)

    def reader(self, origin: Origin) -> Reader:
        """Begin a source."""
        self._readers.append(Reader(origin, self.finder))
        return self._readers[-1]

    def forget(self, source: str) -> bool:
        """Drop what was kept of a source; say whether it is known at all."""
        dropped = {_alike(pair) for pair in self._records if pair[0].source == source}
        self._records[:] = [pair for pair in self._records if pair[0].source != source]
        left = Counter(map(_alike, self._records))
        for alike in dropped:
            self._counts.subtract(dict.fromkeys(alike[0], self._alike[alike] - left[alike]))
            self._alike[alike] = left[alike]
        return any(reader.origin.name == source for reader in self._readers)

    def keep_last_job(self, reader: Reader, records: Iterator[Record]) -> None:
        """Take what a reader gives; what was kept of a source is dropped where another job begins in it."""
        jobs = reader.jobs.count

        def of_last() -> Iterator[Record]:
            nonlocal jobs
            for record in records:
                if reader.jobs.count > jobs:
                    jobs = reader.jobs.count
                    self.forget(reader.origin.name)
                if record.line >= reader.jobs.line:
                    yield record

        self.keep(of_last())
        if reader.jobs.count > jobs:
            self.forget(reader.origin.name)

    @property
    def blank(self) -> tuple[str, ...]:
        """The sources that hold nothing but blanks."""
        return tuple(reader.origin.name for reader in self._readers if reader.is_blank)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out: the jobs before the last one of a source."""
        return tuple(_note(reader.origin.name, reader.jobs) for reader in self._readers if reader.jobs.count > 1)

    def keep(self, records: Iterator[Record]) -> None:
        """Take records in their order."""
        for each in records:
            record, matching = self._searched(each)
            self._counts.update(matching)
            if not matching and not record.error:
                continue
            alike = _alike((record, matching))
            self._alike[alike] += 1
            if self._alike[alike] <= ALIKE and len(self._records) < MOST:
                self._records.append((record, matching))

    def _searched(self, record: Record) -> tuple[Record, Patterns]:
        """Return the patterns that a record matches; the record in other words where it does so only in those."""
        text = in_english(record.text)
        if matching := self.finder.matching(text):
            return (record if text == record.text else replace(record, text=text)), matching
        for whole in unbroken(text, record.error) if record.error else ():
            if matching := self.finder.matching(whole):
                return replace(record, text=whole), matching
        return record, ()

    def kept(self, rank: int | None = None) -> MatchedLog:
        """Return all that was kept, in order; or what one rank said."""
        pairs = [pair for pair in self._records if rank is None or pair[0].rank == rank]
        near = self._dated(pairs)
        pairs = _of_one_year(pairs, near)
        first = frozenset(reader.first_failed for reader in self._readers if reader.first_failed is not None)
        ordered = _in_order(pairs, first, ahead(self._starts(pairs, near)))
        matched: dict[Pattern, list[int]] = {pattern: [] for pattern in self.finder.patterns}
        for position, (_, matching) in enumerate(ordered):
            for pattern in matching:
                matched[pattern].append(position)
        positions = {pattern: tuple(each) for pattern, each in matched.items()}
        records = tuple(record for record, _ in ordered)
        counts = self._counts.copy()
        for matching, count in self.finder.skipped():
            counts.update(dict.fromkeys(matching, count))
        lengths = {reader.origin.name: reader.lines for reader in self._readers}
        by_text = {pattern.pattern: each for pattern, each in positions.items()}
        return MatchedLog(
            Log(records, by_text, self._nodes(records), lengths),
            positions,
            dict(counts),
            lengths,
            {reader.origin.name: reader.last_lines for reader in self._readers},
            {rank: status for reader in self._readers for rank, status in reader.statuses.items()},
            first,
        )

    def _dated(self, pairs: list[tuple[Record, Patterns]]) -> float | None:
        """Return the time in the middle of those that name a year; None where none does."""
        starts = [began.seconds for reader in self._readers if (began := reader.began) and began.year is not None]
        told = [record.time for record, _ in pairs if record.time is not None and is_dated(record.time)]
        times = sorted((*starts, *told))
        return times[len(times) // 2] if times else None

    def _starts(self, pairs: list[tuple[Record, Patterns]], near: float | None) -> Iterator[Start]:
        """Yield when each source begins, and on which host."""
        nodes = {record.source: record.node for record, _ in reversed(pairs) if record.node is not None}
        for reader in self._readers:
            if (began := reader.began) is not None:
                name = reader.origin.name
                seconds = began.seconds if began.year is not None or near is None else nearest(began.seconds, near)
                yield Start(name, reader.origin.node or nodes.get(name), seconds, began.zoned)

    def _nodes(self, records: tuple[Record, ...]) -> tuple[str, ...]:
        named = (*(record.node for record in records), *(reader.origin.node for reader in self._readers))
        return tuple(dict.fromkeys(node for node in named if node is not None))


def _note(name: str, jobs: Jobs) -> str:
    """Return which job of several is read, and how to read those before it."""
    before = f"head -n {jobs.line - 1} {shlex.quote(name)} | ddpdoctor explain -"
    return f"{name}: {jobs.count} jobs, one after the other; this is the last one, from line {jobs.line}" + (
        "" if name.startswith("<") else f" (the others: {before})"
    )


def _alike(pair: tuple[Record, Patterns]) -> Alike:
    """Return what records have in common of which a few are enough."""
    record, matching = pair
    return matching, record.error, record.rank


def _in_order(
    pairs: list[tuple[Record, Patterns]], first: frozenset[int], fast: Mapping[str, float]
) -> list[tuple[Record, Patterns]]:
    """Sort by source and line, and several sources by time; a record without one goes with the record before it.

    ``fast`` are the seconds by which a source's clock is ahead of the others'. Where time does not tell, the ranks that
    a launcher saw failing first go first.
    """
    sources = {name: number for number, name in enumerate(dict.fromkeys(record.source for record, _ in pairs))}
    pairs = sorted(pairs, key=lambda pair: (sources[pair[0].source], pair[0].line))
    if len(sources) < 2:  # noqa: PLR2004 - one source is in its own order
        return pairs
    latest: dict[str, float] = {}
    keys: list[tuple[float, bool]] = []
    for record, _ in pairs:
        before = latest.get(record.source, float("-inf"))
        now = None if record.time is None else record.time - fast.get(record.source, 0)
        latest[record.source] = before if now is None else max(now, before)
        time_or_before = latest[record.source] if now is None else now
        keys.append((time_or_before, record.rank not in first))
    return [pair for _, pair in sorted(zip(keys, pairs, strict=True), key=lambda each: each[0])]


def _of_one_year(pairs: list[tuple[Record, Patterns]], near: float | None) -> list[tuple[Record, Patterns]]:
    """Return the times of lines that name no year in the year that the others tell."""
    if near is None:
        return pairs

    def moved(record: Record) -> Record:
        return (
            record if record.time is None or is_dated(record.time) else replace(record, time=nearest(record.time, near))
        )

    return [(moved(record), matching) for record, matching in pairs]
