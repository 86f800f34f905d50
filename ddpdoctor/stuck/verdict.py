"""What the checks say of a job that was looked at: the watch's own, shown what was seen from outside."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.engine import result
from ddpdoctor.findings import Report, Result, Severity, Status
from ddpdoctor.watch.dispatcher import Dispatcher, Found
from ddpdoctor.watch.events import Doing, Position

if TYPE_CHECKING:
    from ddpdoctor.facets import Check
    from ddpdoctor.watch.events import Stalled
    from ddpdoctor.watch.training import Training

MOVES = frozenset({Doing.WORKING, Doing.ASKING})


@dataclass(frozen=True, slots=True)
class Verdict:
    """``said`` is the verdict in a line; ``report`` has the findings."""

    said: str
    report: Report


def verdict(event: Stalled, training: Training, checks: Iterable[Check], seconds: float) -> Verdict:
    """Ask the checks, unless no rank waits for another one."""
    dispatcher = Dispatcher(checks)
    stands = any(each.doing not in MOVES for each in event.ranks)
    found = list(dispatcher.see_of(training, event)) if stands else []
    report = Report((*_results(found), *dispatcher.crashes), (), seconds)
    return Verdict(_said(event, report), report)


def _results(found: list[Found]) -> tuple[Result, ...]:
    by_check: dict[str, list[Found]] = {}
    for each in found:
        by_check.setdefault(each.check.code, []).append(each)
    return tuple(
        result(group[0].check, Status.FAILED, findings=tuple(each.finding for each in group))
        for group in by_check.values()
    )


def _said(event: Stalled, report: Report) -> str:
    working = event.doing(*MOVES)
    if len(working) == len(event.ranks):
        return "This training does not hang: every rank that was seen is at work."
    if working:
        return f"This training does not hang: {_ranks(working)} {'are' if working[1:] else 'is'} at work, others wait."
    if len({each.rank for each in event.ranks}) < event.world_size and not report.exit_status(Severity.WARNING):
        return "All ranks of this host wait for others, which are not seen from here."
    return "This training hangs."


def _ranks(positions: tuple[Position, ...]) -> str:
    numbers = [str(each.rank) for each in positions]
    return f"rank{'s' if numbers[1:] else ''} {', '.join(numbers)}"
