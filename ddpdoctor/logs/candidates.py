"""Which log patterns of which checks a log shows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ddpdoctor.engine import evaluate
from ddpdoctor.facets import LogPattern, Role
from ddpdoctor.logs.handled_errors import is_quoted
from ddpdoctor.logs.records import Kind

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable, Iterator

    from ddpdoctor.facets import Check, Pattern
    from ddpdoctor.findings import Evidence, Finding
    from ddpdoctor.logs.record_buffer import MatchedLog
    from ddpdoctor.logs.records import Record

EXAMINED = 8  # records of one rank in which a pattern is examined, and
IN_ALL = 32  # of all ranks together: more of them say the same


@dataclass(frozen=True, slots=True)
class Declared:
    """A log pattern, what loads the check that declares it, and the place of its facet among those of the check."""

    log_pattern: LogPattern
    load: Callable[[], Check]
    number: int


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
        Declared(facet.subject, partial(_loaded, check), number)
        for check in checks
        for number, facet in enumerate(check.facets)
        if isinstance(facet.subject, LogPattern)
    )


def _loaded(check: Check) -> Check:
    return check


def examined(kept: MatchedLog, pattern: Pattern) -> list[int]:
    """Return the records that a pattern is examined in: the first few of each rank that its pattern matches."""
    if not kept.matched.get(pattern):
        return []
    seen: Counter[int | None] = Counter()
    positions: list[int] = []
    for position in kept.matched[pattern]:
        rank = kept.log.records[position].rank
        if seen[rank] < EXAMINED and len(positions) < IN_ALL:
            positions.append(position)
        seen[rank] += 1
    return positions


def unexamined(kept: MatchedLog, pattern: Pattern) -> set[int]:
    """Return the records that a pattern matches as well, beyond those that it is examined in."""
    return set(kept.matched[pattern]) - set(examined(kept, pattern))


def candidates(kept: MatchedLog, patterns: Iterable[Declared], crashes: list[str]) -> Iterator[Candidate]:
    """Ask each facet about the records that its log pattern occurs in."""
    for each in patterns:
        positions = examined(kept, each.log_pattern.pattern)
        if not positions:
            continue
        check = each.load()
        for position in positions:
            record = kept.log.records[position]
            match = each.log_pattern.pattern.search(record.text)
            if match is None or (record.kind is Kind.LINE and is_quoted(record.text, match.start())):
                continue
            offers = {"record": record, "match": match, "log": kept.log}
            said = evaluate(check, check.facets[each.number], offers.__getitem__)
            if said.crash:
                crashes.append(f"{check.code} {check.slug} crashed: {said.crash}")
                break
            for finding in said.findings:
                yield Candidate(check, each.log_pattern, _seen_once(finding), record, match, position)


def _seen_once(finding: Finding) -> Finding:
    """Put together what one line proves twice, as a log does whose line breaks are lost."""
    seen: dict[tuple[str, str], Evidence] = {}
    for each in finding.evidence:
        before = seen.get((each.seen, each.source))
        expected = [before.expected, each.expected] if before else [each.expected]
        seen[each.seen, each.source] = replace(each, expected="; ".join(filter(None, dict.fromkeys(expected))))
    return finding if len(seen) == len(finding.evidence) else replace(finding, evidence=tuple(seen.values()))
