"""Which signs of which checks a log shows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import Instrument, Role, Sign
from ddpdoctor.explain.records import Log

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Iterator

    from ddpdoctor.check import Check, Facet
    from ddpdoctor.explain.records import Record
    from ddpdoctor.model import Finding

SHOWN = 16  # records of one rank in which a sign is examined; the others are counted


class Declared(NamedTuple):
    """A sign, with the check and the facet that declare it."""

    check: Check
    facet: Facet
    sign: Sign


@dataclass(frozen=True, slots=True)
class Suspect:
    """A check that found something in a record: what it is to the failure, and where in the log and the record."""

    check: Check
    sign: Sign
    finding: Finding
    record: Record
    match: re.Match[str]
    position: int

    @property
    def role(self) -> Role:
        """Give the role of the sign."""
        return self.sign.role


def declared(checks: Iterable[Check]) -> tuple[Declared, ...]:
    """List the signs of the checks."""
    return tuple(
        Declared(check, facet, facet.subject)
        for check in checks
        for facet in check.of(Instrument.SIGN)
        if isinstance(facet.subject, Sign)
    )


def kept(records: Iterable[Record], signs: Iterable[Declared]) -> Iterator[Record]:
    """Give the records in which a pattern of a sign, or one beside it, occurs, and the tracebacks."""
    patterns = {pattern for each in signs for pattern in (each.sign.pattern, *each.sign.beside)}
    for record in records:
        if record.error or any(pattern.search(record.text) for pattern in patterns):
            yield record


def suspects(log: Log, signs: Iterable[Declared]) -> Iterator[Suspect]:
    """Ask each facet about the records that its sign occurs in."""
    for each in signs:
        seen: Counter[int | None] = Counter()
        for position, record in enumerate(log.records):
            match = each.sign.pattern.search(record.text)
            if match is None or seen[record.rank] >= SHOWN:
                continue
            seen[record.rank] += 1
            offers = {"record": record, "match": match, "log": log}
            for finding in each.facet.examine(**{name: offers[name] for name in each.facet.needs}):
                known = replace(finding, severity=finding.severity or each.check.severity)
                yield Suspect(each.check, each.sign, known, record, match, position)
