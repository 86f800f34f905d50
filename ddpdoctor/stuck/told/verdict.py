"""What the checks say of a job that was looked at: the watch's own, shown what was seen from outside."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ddpdoctor.engine import result
from ddpdoctor.findings import Finding, Report, Result, Severity, Status
from ddpdoctor.stuck.looks.gpus import waited_for
from ddpdoctor.stuck.told.text import by_worker, where
from ddpdoctor.stuck.waits.polled import asked_text
from ddpdoctor.watch.dispatcher import Dispatcher, Found
from ddpdoctor.watch.events import Doing
from ddpdoctor.watch.training import Training

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddpdoctor.facets import Check
    from ddpdoctor.stuck.told.sighting import Sighting
    from ddpdoctor.watch.events import LauncherWaits, Position, Stalled

SHOWN = 4  # ranks that are named in the verdict
LONGEST = 100  # characters of a condition


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
    found = [Found(each.check, _with_its_host(each.finding, sighting)) for each in found]
    report = Report((*_results(found), *dispatcher.crashes), (), seconds)
    return Verdict(_by_gpus(sighting) or _said(event, report), report)


def _with_its_host(finding: Finding, sighting: Sighting) -> Finding:
    """Return a finding with the host of its rank, where there are several: processes have other numbers on each."""
    seen = next((each for each in sighting.ranks if each.position.rank == finding.place.rank), None)
    if seen is None or len({each.host for each in sighting.ranks}) == 1:
        return finding
    own = re.compile(rf"\b{seen.position.pid}\b(?!.*#)")
    lines = (f"{line}   # on {seen.host}" if own.search(line) else line for line in finding.fix.command.splitlines())
    fix = replace(finding.fix, command="\n".join(lines))
    return replace(finding, fix=fix, place=replace(finding.place, host=seen.host))


def of_launcher(event: LauncherWaits, checks: Iterable[Check], seconds: float) -> Verdict:
    """Say what keeps a launcher that has started no rank."""
    dispatcher = Dispatcher(checks)
    found = list(dispatcher.see_of(Training(), event))
    report = Report((*_results(found), *dispatcher.crashes), (), seconds)
    if event.again:
        said = f"This training does not go on: {event.launcher} waits for other nodes to start its ranks anew."
        return Verdict(said, report)
    return Verdict(f"This training has not begun: {event.launcher} has started no rank.", report)


def _results(found: list[Found]) -> tuple[Result, ...]:
    by_check: dict[str, list[Found]] = {}
    for each in found:
        by_check.setdefault(each.check.code, []).append(each)
    return tuple(
        result(group[0].check, Status.FAILED, findings=tuple(each.finding for each in group))
        for group in by_check.values()
    )


def _by_gpus(sighting: Sighting) -> str:
    """Return what the GPUs tell where the stacks do not: a rank that waits for its GPU computes, by the kernel's count.

    Only of ranks that are all at work at lines that no loop left meanwhile, each with a GPU to itself, and NCCL.
    """
    ranks = sighting.ranks
    works = all(each.position.doing is Doing.WORKING and not each.moved and "nccl" in each.backends for each in ranks)
    first = waited_for(each.use for each in ranks) if works else None
    if first is None:
        return ""
    idle, use = ranks[first].position, ranks[first].use
    return (
        f"Undecided: rank {idle.rank} {where(idle)}, and its GPU idles ({use}) while those of the others are busy: "
        f"they wait for it in a kernel of NCCL. It hangs if rank {idle.rank} does not go on: look again, for longer "
        "(--seconds 60)."
    )


def _said(event: Stalled, report: Report) -> str:
    at_work, asking = event.doing(Doing.WORKING), event.doing(Doing.ASKING)
    if len(at_work) == len(event.ranks) and not all(each.awaited for each in at_work):
        return f"This training does not hang: every rank that was seen is at work{_by_workers(at_work)}."
    if at_work and all(each.awaited for each in at_work):
        return (
            f"Undecided: {_ranks(at_work, 'waits for a disk')}, and nothing else moves: it hangs if that never answers."
        )
    if at_work:
        return f"This training does not hang: {_ranks(at_work)}, the others wait."
    if asking and not report.findings(Severity.ERROR):
        return f"Undecided: {_ranks(asking)}{_until(asking[0])}, and nothing else moves: it hangs if that never comes."
    if not report.findings(Severity.WARNING) and len(event.ranks) < event.world_size:
        return "Undecided: all ranks that were seen wait for others, which were not seen."
    return "This training hangs."


def _by_workers(positions: tuple[Position, ...]) -> str:
    """Return that none of them moves by itself, where each waits for a worker of its loader that is at work."""
    told = [(each, by_worker(each)) for each in positions]
    if not told or not all(worker for _, worker in told):
        return ""
    listed = ", ".join(f"rank {each.rank} by {worker}" for each, worker in told[:SHOWN])
    return f", {listed}; whether these get on, a longer look tells (--seconds 60)"


def _until(position: Position) -> str:
    """Return the condition of the loop in which a rank asks, where it does nothing else there."""
    asked = asked_text(position.site.file, position.site.line) if position.site and position.stack else ""
    return f" (`{asked}`)" if asked and len(asked) <= LONGEST else ""


def _ranks(positions: tuple[Position, ...], does: str = "") -> str:
    """Return what each does, and at which line; or that all of them do this."""
    said = [f"rank {each.rank} {where(each, does)}" for each in positions[:SHOWN]]
    return ", ".join(said) + (f" and {len(positions) - SHOWN} more" if positions[SHOWN:] else "")
