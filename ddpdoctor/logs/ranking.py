"""Which of the things that a log shows came first, and which only followed from it."""

from __future__ import annotations

import enum
import re
from typing import TYPE_CHECKING

from ddpdoctor.facets import Role
from ddpdoctor.findings import Severity
from ddpdoctor.logs.answer import Answer, Confidence, Named, Unknown
from ddpdoctor.logs.candidates import examined
from ddpdoctor.logs.handled_errors import lines_after, survived
from ddpdoctor.logs.read.tracebacks import IN_SUMMARY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddpdoctor.logs.candidates import Candidate
    from ddpdoctor.logs.record_buffer import MatchedLog
    from ddpdoctor.logs.records import Record

# No errors of their own: somebody, or something else, ended the program.
ENDED = re.compile(r"(?:^|\.)(?:KeyboardInterrupt|SystemExit|ChildFailedError|SignalException)$")


class Tier(enum.IntEnum):
    """How near to a first cause: a log's answer is of the lowest tier that it shows."""

    CAUSE = 0
    UNKNOWN = 1
    AMBIGUOUS = 2
    GENERIC = 3
    WARNING = 4
    CONSEQUENCE = 5
    HARMLESS = 6


TIERS = {
    Role.CAUSE: Tier.CAUSE,
    Role.GENERIC: Tier.GENERIC,
    Role.CONSEQUENCE: Tier.CONSEQUENCE,
    Role.HARMLESS: Tier.HARMLESS,
}

Placed = tuple[Tier, "Candidate"]


def tier(candidate: Candidate) -> Tier:
    """Return what a suspect is before any other is known."""
    place, finding = TIERS[candidate.role], candidate.finding
    if finding.severity is not None and finding.severity < Severity.ERROR:
        return max(place, Tier.WARNING)
    return max(place, Tier.AMBIGUOUS) if finding.ambiguity else place


def ranked(candidates: Iterable[Candidate]) -> list[Placed]:
    """Sort by tier, then by order in the log; what only follows from another comes down to the consequences."""
    ordered = _sorted((tier(each), each) for each in candidates)
    superseded = {slug for place, each in ordered if place <= Tier.WARNING for slug in each.log_pattern.supersedes}
    first = next((pair for pair in ordered if pair[1].check.slug not in superseded), None)
    return _sorted(
        (max(place, Tier.CONSEQUENCE), each)
        if each.check.slug in superseded or (first and _follows((place, each), first))
        else (place, each)
        for place, each in ordered
    )


def _follows(pair: Placed, first: Placed) -> bool:
    """Whether the roles alone say that one suspect follows from the first of those that stand."""
    place, each = pair
    if place is Tier.GENERIC:
        return each is not first[1]
    return place is Tier.AMBIGUOUS and first[0] is Tier.CAUSE and first[1].position <= each.position


def _sorted(pairs: Iterable[Placed]) -> list[Placed]:
    return sorted(pairs, key=lambda pair: (pair[0], *order(pair[1])))


def order(candidate: Candidate) -> tuple[int, int, int]:
    """Earlier in the log first; in the same line what more of the line says."""
    match = candidate.match
    return (
        candidate.position,
        match.string.count("\n", 0, match.start()),
        match.start() - match.end(),
    )


def judged(kept: MatchedLog, candidates: Iterable[Candidate], faults: tuple[str, ...] = ()) -> Answer:
    """Find the first cause among the suspects, and tell it from what followed."""
    ordered = ranked(candidates)
    named = _gathered(kept, ordered)
    stranger = _stranger(kept, ordered)
    if stranger is not None and ordered and not _comes_first(stranger[0], ordered[0]):
        stranger = None
    causes = [each for place, each in named if place < Tier.CONSEQUENCE]
    followed = [each for place, each in named if place == Tier.CONSEQUENCE]
    if stranger is None and not causes:
        causes, followed = followed[:1], followed[1:]
    best = causes.pop(0) if causes and stranger is None else None
    return Answer(
        cause=best,
        confidence=_confidence(best, causes) if best else None,
        unknown=stranger[1] if stranger else None,
        others=tuple(causes),
        followed=tuple(followed),
        harmless=tuple(each for place, each in named if place == Tier.HARMLESS),
        sources=tuple(kept.lengths),
        lines=sum(kept.lengths.values()),
        faults=faults,
    )


def _comes_first(position: int, best: tuple[Tier, Candidate]) -> bool:
    """Whether an unknown error at this position is the cause rather than the best suspect."""
    place, candidate = best
    return place > Tier.GENERIC or (place >= Tier.AMBIGUOUS and position < candidate.position)


def _gathered(kept: MatchedLog, ordered: Iterable[tuple[Tier, Candidate]]) -> list[tuple[Tier, Named]]:
    """Make one of all suspects of a check: its best, with the count of what its log patterns matched."""
    groups: dict[str, list[tuple[Tier, Candidate]]] = {}
    for pair in ordered:
        groups.setdefault(pair[1].check.code, []).append(pair)
    return [(group[0][0], _named(kept, [each for _, each in group])) for group in groups.values()]


def _named(kept: MatchedLog, group: list[Candidate]) -> Named:
    """Return the best of a check's suspects; what was not examined counts, since it matches as they do."""
    best = group[0]
    positions = {each.position for each in group}
    count = len(positions)
    for pattern in {each.log_pattern.pattern for each in group}:
        matched, looked_at = kept.matched[pattern], examined(kept, pattern)
        count += kept.counts[pattern] - len(looked_at)
        positions |= set(matched) - set(looked_at)
    ranks = _ranks(kept.log.records[position] for position in positions)
    return Named(best.check, best.role, best.finding, best.record, count, ranks)


def _stranger(kept: MatchedLog, ordered: Iterable[tuple[Tier, Candidate]]) -> tuple[int, Unknown] | None:
    """Return the first exception that no log pattern matches, with its position; not one that the training survived."""
    known = {each.position for place, each in ordered if place < Tier.HARMLESS}
    errors = [(position, record) for position, record in enumerate(kept.log.records) if record.error]
    records = [pair for pair in errors if not ENDED.search(pair[1].error) and pair[0] not in known]
    if not records:
        return None
    position, first = _first_in_summary(records) or records[0]
    alike = [record for _, record in records if record.error == first.error]
    ended = known or len(records) < len(errors)
    if not ended and all(survived(kept, record) for record in alike):
        return None
    return position, Unknown(first, len(alike), _ranks(alike), lines_after(kept, first))


def _first_in_summary(records: list[tuple[int, Record]]) -> tuple[int, Record] | None:
    """Give the earliest of those that torchrun's summary tells, which has the root cause last; None for another log."""
    if not IN_SUMMARY.match(records[0][1].text):
        return None
    told = [pair for pair in records if IN_SUMMARY.match(pair[1].text)]
    return min(told, key=lambda pair: pair[1].time or 0)


def _confidence(named: Named, others: Iterable[Named]) -> Confidence:
    """Return how sure it is that this is the first cause."""
    if named.finding.ambiguity is not None:
        return Confidence.UNDECIDABLE
    return Confidence.LIKELY if any(others) else Confidence.CERTAIN


def _ranks(records: Iterable[Record]) -> tuple[int, ...]:
    return tuple(sorted({record.rank for record in records if record.rank is not None}))
