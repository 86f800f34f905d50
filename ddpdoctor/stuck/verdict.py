"""What the checks say of a job that was looked at: the watch's own, shown what was seen from outside."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.engine import result
from ddpdoctor.findings import Report, Result, Severity, Status
from ddpdoctor.stuck.text import where
from ddpdoctor.watch.dispatcher import Dispatcher, Found
from ddpdoctor.watch.events import Doing
from ddpdoctor.watch.training import Training

if TYPE_CHECKING:
    from ddpdoctor.facets import Check
    from ddpdoctor.stuck.sighting import Sighting
    from ddpdoctor.watch.events import LauncherWaits, Position, Stalled

SHOWN = 4  # ranks that are named in the verdict


@dataclass(frozen=True, slots=True)
class Verdict:
    """``said`` is the verdict in a line; ``report`` has the findings."""

    said: str
    report: Report


def verdict(sighting: Sighting, checks: Iterable[Check], seconds: float) -> Verdict:
    """Ask the checks, unless every rank is at work."""
    event = sighting.stalled()
    dispatcher = Dispatcher(checks)
    stands = any(each.doing is not Doing.WORKING for each in event.ranks)
    found = list(dispatcher.see_of(sighting.told(), event)) if stands else []
    report = Report((*_results(found), *dispatcher.crashes), (), seconds)
    return Verdict(_said(event, report), report)


def of_launcher(event: LauncherWaits, checks: Iterable[Check], seconds: float) -> Verdict:
    """Say what keeps a launcher that has started no rank."""
    dispatcher = Dispatcher(checks)
    found = list(dispatcher.see_of(Training(), event))
    report = Report((*_results(found), *dispatcher.crashes), (), seconds)
    return Verdict("This training has not begun: torchrun has started no rank.", report)


def _results(found: list[Found]) -> tuple[Result, ...]:
    by_check: dict[str, list[Found]] = {}
    for each in found:
        by_check.setdefault(each.check.code, []).append(each)
    return tuple(
        result(group[0].check, Status.FAILED, findings=tuple(each.finding for each in group))
        for group in by_check.values()
    )


def _said(event: Stalled, report: Report) -> str:
    at_work, asking = event.doing(Doing.WORKING), event.doing(Doing.ASKING)
    if len(at_work) == len(event.ranks):
        return "This training does not hang: every rank that was seen is at work."
    if at_work:
        return f"This training does not hang: {_ranks(at_work)}, the others wait."
    if asking:
        return f"Undecided: {_ranks(asking)}, and nothing else moves: it hangs if that never comes."
    if not report.findings(Severity.WARNING) and len(event.ranks) < event.world_size:
        return "Undecided: all ranks that were seen wait for others, which were not seen."
    return "This training hangs."


def _ranks(positions: tuple[Position, ...]) -> str:
    said = [f"rank {each.rank} {where(each)}" for each in positions[:SHOWN]]
    return ", ".join(said) + (f" and {len(positions) - SHOWN} more" if positions[SHOWN:] else "")
