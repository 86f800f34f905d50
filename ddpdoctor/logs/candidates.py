"""Which log patterns of which checks a log shows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.engine import evaluate
from ddpdoctor.facets import Instrument, LogPattern, Role

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Iterator

    from ddpdoctor.facets import Check, Facet, Pattern
    from ddpdoctor.findings import Finding
    from ddpdoctor.logs.record_buffer import MatchedLog
    from ddpdoctor.logs.records import Record

EXAMINED = 8  # records of one rank in which a pattern is examined, and
IN_ALL = 32  # of all ranks together: more of them say the same


class Declared(NamedTuple):
    """A log pattern, with the check and the facet that declare it."""

    check: Check
    facet: Facet
    log_pattern: LogPattern


@dataclass(frozen=True, slots=True)
class Candidate:
    """A check that found something in a record: what it is to the failure, and where in the log and the record."""

    check: Check
    log_pattern: LogPattern
    finding: Finding
    record: Record
    match: re.Match[str]
    position: int

    @property
    def role(self) -> Role:
        """The role of the log pattern."""
        return self.log_pattern.role


def declared(checks: Iterable[Check]) -> tuple[Declared, ...]:
    """List the log patterns of the checks."""
    return tuple(
        Declared(check, facet, facet.subject)
        for check in checks
        for facet in check.of(Instrument.LOG)
        if isinstance(facet.subject, LogPattern)
    )


def examined(kept: MatchedLog, pattern: Pattern) -> list[int]:
    """Return the records that a pattern is examined in: the first few of each rank that its pattern matches."""
    seen: Counter[int | None] = Counter()
    positions: list[int] = []
    for position in kept.matched.get(pattern, ()):
        rank = kept.log.records[position].rank
        if seen[rank] < EXAMINED and len(positions) < IN_ALL:
            positions.append(position)
        seen[rank] += 1
    return positions


def candidates(kept: MatchedLog, patterns: Iterable[Declared], crashes: list[str]) -> Iterator[Candidate]:
    """Ask each facet about the records that its log pattern occurs in."""
    for each in patterns:
        for position in examined(kept, each.log_pattern.pattern):
            record = kept.log.records[position]
            match = each.log_pattern.pattern.search(record.text)
            if match is None:
                continue
            offers = {"record": record, "match": match, "log": kept.log}
            said = evaluate(each.check, each.facet, offers.__getitem__)
            if said.crash:
                crashes.append(f"{each.check.code} {each.check.slug} crashed: {said.crash}")
                break
            for finding in said.findings:
                yield Candidate(each.check, each.log_pattern, finding, record, match, position)
