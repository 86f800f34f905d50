"""From logs to the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.explain.answer import Answer
from ddpdoctor.explain.ranking import Tier, confidence, gathered, ranked, unknown
from ddpdoctor.explain.reader import in_order, read
from ddpdoctor.explain.records import Log
from ddpdoctor.explain.signs import declared, kept, suspects

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddpdoctor.check import Check
    from ddpdoctor.explain.records import Record
    from ddpdoctor.explain.sources import Origin


def explain(sources: Iterable[tuple[Origin, Iterable[bytes]]], checks: Iterable[Check]) -> Answer:
    """Read all sources, each an origin and its lines, and find the first cause."""
    signs = declared(checks)
    records = (record for origin, lines in sources for record in kept(read(lines, origin), signs))
    return judged(records, checks)


def judged(records: Iterable[Record], checks: Iterable[Check]) -> Answer:
    """Find the first cause among records."""
    log = Log(in_order(records))
    ordered = ranked(suspects(log, declared(checks)))
    named = gathered(ordered)
    stranger = unknown(log, ordered)
    first = next(iter(ordered), None)
    if stranger is not None and first is not None:
        place, suspect = first
        if place < Tier.UNKNOWN or (place == Tier.SYMPTOM and suspect.position < stranger[0]):
            stranger = None
    candidates = [each for place, each in named if place < Tier.CONSEQUENCE]
    followed = [each for place, each in named if place == Tier.CONSEQUENCE]
    harmless = tuple(each for place, each in named if place == Tier.HARMLESS)
    if stranger is None and not candidates:
        candidates, followed = followed[:1], followed[1:]
    best = None if stranger is not None or not candidates else candidates.pop(0)
    return Answer(
        cause=best,
        confidence=confidence(best, candidates) if best else None,
        unknown=stranger[1] if stranger else None,
        others=tuple(candidates),
        followed=tuple(followed),
        harmless=harmless,
    )
