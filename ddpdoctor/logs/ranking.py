"""Which of the things that a log shows came first, and which only followed from it."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from ddpdoctor.facets import Role
from ddpdoctor.findings import Severity
from ddpdoctor.logs.answer import Answer, Confidence, Named
from ddpdoctor.logs.candidates import examined, unexamined
from ddpdoctor.logs.handled_errors import was_caught
from ddpdoctor.logs.plain_errors import explained, plain_and_others
from ddpdoctor.logs.unknown.strangers import Stranger, ranks_of, stranger

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddpdoctor.logs.candidates import Candidate
    from ddpdoctor.logs.record_buffer import MatchedLog
    from ddpdoctor.logs.records import Record


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
    plain, suspects = plain_and_others(candidates)
    ordered = ranked(suspects)
    calm = all(was_caught(kept, each.record, each.match.start()) for each in _failures(ordered))
    unknown = found = stranger(kept, [each for place, each in ordered if place < Tier.HARMLESS], calm=calm)
    if found is None and calm:
        ordered = [(place, each) for place, each in ordered if place in {Tier.WARNING, Tier.HARMLESS}]
    named = _gathered(kept, ordered)
    if found is not None and ordered and not _comes_first(found, ordered[0]):
        unknown = None
    is_beside = found is not unknown and _only_waits(ordered[0][1])
    causes = [each for place, each in named if place < Tier.CONSEQUENCE]
    followed = [each for place, each in named if place == Tier.CONSEQUENCE]
    if unknown is not None:
        followed = [*(each for each in causes if each.role is Role.GENERIC), *followed]
        causes = [each for each in causes if each.role is not Role.GENERIC]
    if unknown is None and not causes:
        causes, followed = followed[:1], followed[1:]
    best = causes.pop(0) if causes and unknown is None else None
    if found is not None and (unknown or is_beside) and (said := explained(plain, found)):
        best, causes = (said, causes) if unknown else (best, [said, *causes])
        unknown, is_beside = None, False
    return Answer(
        cause=best,
        confidence=_confidence(best, causes) if best else None,
        unknown=unknown.told if unknown else None,
        also_unknown=found.told if found and is_beside else None,
        others=tuple(causes),
        followed=tuple(followed),
        harmless=tuple(each for place, each in named if place == Tier.HARMLESS),
        sources=tuple(kept.lengths),
        lines=sum(kept.lengths.values()),
        faults=faults,
    )


def _failures(ordered: Iterable[Placed]) -> list[Candidate]:
    """Return the suspects of which each ends a training: no warnings, nothing harmless."""
    return [each for place, each in ordered if place not in {Tier.WARNING, Tier.HARMLESS}]


def _comes_first(unknown: Stranger, best: tuple[Tier, Candidate]) -> bool:
    """Whether an unknown error is the cause rather than the best suspect."""
    place, candidate = best
    if place > Tier.GENERIC or (place >= Tier.AMBIGUOUS and unknown.position < candidate.position):
        return True
    return _only_waits(candidate) and unknown.is_awaited and not _is_later(unknown.told.record, candidate.record)


def _only_waits(candidate: Candidate) -> bool:
    """Whether whoever printed it waited for others, or says no more than that something failed."""
    return candidate.log_pattern.waits or candidate.role is Role.GENERIC


def _is_later(record: Record, than: Record) -> bool:
    """Whether one clock says so; lines of several ranks have none in common where they name no time."""
    if record.time is None or than.time is None or record.node != than.node:
        return False
    return record.time > than.time


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
        count += kept.counts[pattern] - len(examined(kept, pattern))
        positions |= unexamined(kept, pattern)
    ranks = ranks_of(kept.log.records[position] for position in positions)
    return Named(best.check, best.role, best.finding, best.record, count, ranks, best.log_pattern.waits)


def _confidence(named: Named, others: Iterable[Named]) -> Confidence:
    """Return how sure it is that this is the first cause."""
    if named.finding.ambiguity is not None:
        return Confidence.UNDECIDABLE
    return Confidence.LIKELY if any(others) else Confidence.CERTAIN
