"""Which signs of which checks a log shows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import Instrument, Role, Sign

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Iterator

    from ddpdoctor.check import Check, Facet, Pattern
    from ddpdoctor.explain.kept import Kept
    from ddpdoctor.explain.records import Record
    from ddpdoctor.model import Finding

EXAMINED = 8  # records of one rank in which a sign is examined, and
IN_ALL = 32  # of all ranks together: more of them say the same


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

    @property
    def names(self) -> frozenset[str]:
        """Give all names of the check."""
        return frozenset({self.check.slug, *self.check.known_as})


def declared(checks: Iterable[Check]) -> tuple[Declared, ...]:
    """List the signs of the checks."""
    return tuple(
        Declared(check, facet, facet.subject)
        for check in checks
        for facet in check.of(Instrument.SIGN)
        if isinstance(facet.subject, Sign)
    )


def examined(kept: Kept, pattern: Pattern) -> list[int]:
    """Give the records that a sign is examined in: the first few of each rank that its pattern matches."""
    seen: Counter[int | None] = Counter()
    positions: list[int] = []
    for position in kept.matched.get(pattern, ()):
        rank = kept.log.records[position].rank
        if seen[rank] < EXAMINED and len(positions) < IN_ALL:
            positions.append(position)
        seen[rank] += 1
    return positions


def suspects(kept: Kept, signs: Iterable[Declared]) -> Iterator[Suspect]:
    """Ask each facet about the records that its sign occurs in."""
    for each in signs:
        for position in examined(kept, each.sign.pattern):
            record = kept.log.records[position]
            match = each.sign.pattern.search(record.text)
            offers = {"record": record, "match": match, "log": kept.log}
            for finding in each.facet.examine(**{name: offers[name] for name in each.facet.needs}):
                known = replace(finding, severity=finding.severity or each.check.severity)
                if match is not None:
                    yield Suspect(each.check, each.sign, known, record, match, position)
