"""Reads logs into records, in one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.explain.lines import read_line
from ddpdoctor.explain.tracebacks import Assembler

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ddpdoctor.explain.records import Record
    from ddpdoctor.explain.sources import Origin


def read(lines: Iterable[bytes], origin: Origin) -> Iterator[Record]:
    """Give the records of one source."""
    assembler = Assembler(origin)
    for number, raw in enumerate(lines, 1):
        for line in read_line(raw, number):
            yield from assembler.feed(line)
    yield from assembler.finish()


def in_order(records: Iterable[Record]) -> tuple[Record, ...]:
    """Sort the records of all sources by time; one without a time stands where it stood, after its neighbour."""
    latest: dict[str, float] = {}
    timed: list[tuple[float, Record]] = []
    for record in records:
        time = record.time if record.time is not None else latest.get(record.source, float("-inf"))
        latest[record.source] = max(time, latest.get(record.source, time))
        timed.append((time, record))
    sources = {record.source for _, record in timed}
    if len(sources) > 1:
        timed.sort(key=lambda pair: pair[0])
    return tuple(record for _, record in timed)
