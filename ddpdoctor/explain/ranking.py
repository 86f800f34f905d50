"""Which of the things that a log shows came first, and which only followed from it."""

from __future__ import annotations

import enum
import re
from typing import TYPE_CHECKING

from ddpdoctor.check import Role
from ddpdoctor.explain.answer import Answer, Confidence, Named, Unknown
from ddpdoctor.explain.signs import examined
from ddpdoctor.explain.survived import lines_after, survived
from ddpdoctor.explain.tracebacks import IN_SUMMARY
from ddpdoctor.model import Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddpdoctor.explain.kept import Kept
    from ddpdoctor.explain.records import Record
    from ddpdoctor.explain.signs import Suspect

# No errors of their own: somebody, or something else, ended the program.
ENDED = re.compile(r"(?:^|\.)(?:KeyboardInterrupt|SystemExit|ChildFailedError|SignalException)$")


class Tier(enum.IntEnum):
    """How near to a first cause: a log's answer is of the lowest tier that it shows."""

    CAUSE = 0
    UNKNOWN = 1
    SYMPTOM = 2
    WARNING = 3
    CONSEQUENCE = 4
    HARMLESS = 5


TIERS = {
    Role.CAUSE: Tier.CAUSE,
    Role.SYMPTOM: Tier.SYMPTOM,
    Role.CONSEQUENCE: Tier.CONSEQUENCE,
    Role.HARMLESS: Tier.HARMLESS,
}


def tier(suspect: Suspect) -> Tier:
    """Say what a suspect is before any other is known."""
    minor = suspect.finding.severity is not None and suspect.finding.severity < Severity.ERROR
    return Tier.WARNING if minor and suspect.role in {Role.CAUSE, Role.SYMPTOM} else TIERS[suspect.role]


def ranked(suspects: Iterable[Suspect]) -> list[tuple[Tier, Suspect]]:
    """Sort by tier, then by order in the log; those that a better one explains come down to the consequences."""
    ordered = sorted(((tier(each), each) for each in suspects), key=lambda pair: (pair[0], *order(pair[1])))
    explained: set[str] = set()
    for place, each in ordered:
        if place <= Tier.WARNING and not each.names & explained:
            explained |= set(each.sign.explains) - each.names
    return sorted(
        ((max(place, Tier.CONSEQUENCE) if each.names & explained else place, each) for place, each in ordered),
        key=lambda pair: (pair[0], *order(pair[1])),
    )


def order(suspect: Suspect) -> tuple[int, int, bool, int]:
    """Earlier in the log first; in the same line what leaves no doubt, then what more of the line says."""
    match = suspect.match
    return (
        suspect.position,
        match.string.count("\n", 0, match.start()),
        suspect.finding.doubt is not None,
        match.start() - match.end(),
    )


def judged(kept: Kept, suspects: Iterable[Suspect], faults: tuple[str, ...] = ()) -> Answer:
    """Find the first cause among the suspects, and tell it from what followed."""
    ordered = ranked(suspects)
    named = _gathered(kept, ordered)
    stranger = _stranger(kept, ordered)
    if stranger is not None and ordered and not _comes_first(stranger[0], ordered[0]):
        stranger = None
    candidates = [each for place, each in named if place < Tier.CONSEQUENCE]
    followed = [each for place, each in named if place == Tier.CONSEQUENCE]
    if stranger is None and not candidates:
        candidates, followed = followed[:1], followed[1:]
    best = candidates.pop(0) if candidates and stranger is None else None
    return Answer(
        cause=best,
        confidence=_confidence(best, candidates) if best else None,
        unknown=stranger[1] if stranger else None,
        others=tuple(candidates),
        followed=tuple(followed),
        harmless=tuple(each for place, each in named if place == Tier.HARMLESS),
        sources=tuple(kept.lengths),
        lines=sum(kept.lengths.values()),
        faults=faults,
    )


def _comes_first(position: int, best: tuple[Tier, Suspect]) -> bool:
    """Say whether an unknown error at this position is the cause rather than the best suspect."""
    place, suspect = best
    return place > Tier.SYMPTOM or (place == Tier.SYMPTOM and position < suspect.position)


def _gathered(kept: Kept, ordered: Iterable[tuple[Tier, Suspect]]) -> list[tuple[Tier, Named]]:
    """Make one of all suspects of a check: its best, with the count of what its signs matched."""
    groups: dict[str, list[tuple[Tier, Suspect]]] = {}
    for pair in ordered:
        groups.setdefault(pair[1].check.code, []).append(pair)
    return [(group[0][0], _named(kept, [each for _, each in group])) for group in groups.values()]


def _named(kept: Kept, group: list[Suspect]) -> Named:
    """Give the best of a check's suspects; what was not examined counts, since it matches as they do."""
    best = group[0]
    positions = {each.position for each in group}
    count = len(positions)
    for pattern in {each.sign.pattern for each in group}:
        matched, looked_at = kept.matched[pattern], examined(kept, pattern)
        count += kept.counts[pattern] - len(looked_at)
        positions |= set(matched) - set(looked_at)
    ranks = _ranks(kept.log.records[position] for position in positions)
    return Named(best.check, best.role, best.finding, best.record, count, ranks)


def _stranger(kept: Kept, ordered: Iterable[tuple[Tier, Suspect]]) -> tuple[int, Unknown] | None:
    """Give the first exception that no sign matches, with its position; not one that the training survived."""
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
    """Say how sure it is that this is the first cause."""
    if named.finding.doubt is not None:
        return Confidence.UNDECIDABLE
    return Confidence.LIKELY if any(others) else Confidence.CERTAIN


def _ranks(records: Iterable[Record]) -> tuple[int, ...]:
    return tuple(sorted({record.rank for record in records if record.rank is not None}))
