"""Errors of any program that checks explain all the same: each is told in the place of an error that no check knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.logs.answer import Named
from ddpdoctor.logs.handled_errors import CHAINED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ddpdoctor.logs.candidates import Candidate
    from ddpdoctor.logs.unknown.strangers import Stranger


def plain_and_others(candidates: Iterable[Candidate]) -> tuple[list[Candidate], list[Candidate]]:
    """Divide what checks found by whether it explains an error of any program."""
    plain: list[Candidate] = []
    others: list[Candidate] = []
    for each in candidates:
        (plain if each.log_pattern.plain else others).append(each)
    return plain, others


def explained(plain: Sequence[Candidate], found: Stranger) -> Named | None:
    """Return what a check says of the very error that would be told as unknown; one that was handled is none.

    The most certain comes first, then what is said of the exception that was raised last.
    """
    text = found.told.record.text
    last = text.rfind(CHAINED)
    fitting = [
        each for each in plain if each.position == found.position and last <= each.match.start() < max(len(text), 1)
    ]
    if not fitting:
        return None
    best = min(fitting, key=lambda each: (each.finding.ambiguity is not None, -each.match.start()))
    told = found.told
    return Named(best.check, best.role, best.finding, told.record, told.count, told.ranks, best.log_pattern.waits)
