"""Why a run of the user's command did not start: what the checks say, else the first exception, else its output."""

from __future__ import annotations

import enum
import re
from typing import TYPE_CHECKING

from ddpdoctor.areas import shows_network
from ddpdoctor.findings import Severity
from ddpdoctor.watch.command.command_output import answer_of
from ddpdoctor.watch.events import Failed, Joined, Joining

if TYPE_CHECKING:
    from ddpdoctor.watch.dispatcher import Found
    from ddpdoctor.watch.monitor.monitor import Monitor

OF_THE_PROGRAM = {"checkpoint", "collectives", "data", "model"}
"""Areas of checks whose faults no setting of the communication mends."""
GENERIC = {"collective-timeout", "gloo-collectives-fail", "nccl-collectives-fail", "rank-died-or-stuck", "slow-rank"}
"""Checks of these areas that say what follows from a broken link as well."""
COMMUNICATES = re.compile(
    r"gloo|nccl|tcpstore|socket|connect|resolve|timed? ?out|address|c10d|rendezvous|libuv", re.IGNORECASE
)
IN_TORCH = re.compile(r'File "[^"]*[/\\]torch[/\\][^"]*", line \d+')


class Ending(enum.Enum):
    """How a run ended, as far as its start goes."""

    STARTED = "starts"
    FAILED = "fails"
    LATE = "does not start in time"
    PROGRAM = "fails for a reason of its own"
    NO_RANK = "starts no rank"


def reason(monitor: Monitor, status: int | None, lines: list[str], *, late: bool) -> tuple[Ending, str]:
    """Return why a run did not start: what the checks say of it, else the first exception, else how it ended."""
    failed = sorted(monitor.training.of(Failed), key=lambda each: each.time)
    own = [each for each in failed if not communicates(each)]
    found = next(filter(is_of_the_program, monitor.found), None)
    if own or found:
        return Ending.PROGRAM, _told(found) if found else _failure(own[0])
    if failed:
        network = next((each for each in monitor.found if each.finding.severity is Severity.ERROR), None)
        return Ending.FAILED, _told(network) if network else _failure(failed[0])
    if late:
        return (Ending.LATE if monitor.training.of(Joining) else Ending.NO_RANK), _waits(monitor)
    if not monitor.training.of(Joining):
        return _of_output(lines, status)
    return Ending.FAILED, _signal(lines) or (lines[-1] if lines else f"it ended with status {status}")


def _of_output(lines: list[str], status: int | None) -> tuple[Ending, str]:
    """Return why no rank came as far as init_process_group: what the output says of it."""
    if not status:
        return Ending.NO_RANK, "no process of it calls init_process_group"
    answer = answer_of(lines)
    if (cause := answer.cause) is not None:
        ending = Ending.FAILED if shows_network(cause.check.area) else Ending.PROGRAM
        return ending, f"{cause.check.code} {cause.check.slug}: {cause.finding.message}"
    said = answer.unknown.record.proof().seen if answer.unknown else next(reversed(lines), "it printed nothing")
    ending = Ending.FAILED if answer.unknown and COMMUNICATES.search(said) else Ending.PROGRAM
    return ending, f"it ended with status {status}: {said}"


def communicates(failure: Failed) -> bool:
    """Whether an exception is torch's own, about communication: not one of the user's code, or of a model."""
    if re.search(r"Dist\w*Error$|RendezvousConnectionError$|RendezvousTimeoutError$", failure.error):
        return True
    frames = [line for line in failure.text.splitlines() if line.lstrip().startswith('File "')]
    return bool(frames and IN_TORCH.search(frames[-1]) and COMMUNICATES.search(failure.said))


def is_of_the_program(found: Found) -> bool:
    """Whether a finding is about the training itself, so that no setting mends it."""
    check = found.check
    return check.area in OF_THE_PROGRAM and check.slug not in GENERIC and found.finding.severity is Severity.ERROR


def _told(found: Found) -> str:
    return f"{found.check.code} {found.check.slug}: {found.finding.message}"


def _failure(failure: Failed) -> str:
    where = f" ({failure.site})" if failure.site else ""
    return f"rank {failure.rank}: {failure.said}{where}"


def _signal(lines: list[str]) -> str:
    """Return what torchrun says of a rank that was killed by a signal."""
    found = next(
        (match for line in lines if (match := re.search(r"Signal \d+ \(\w+\) received by PID \d+", line))), None
    )
    return found[0] if found else ""


def _waits(monitor: Monitor) -> str:
    joining, joined = monitor.training.of(Joining), monitor.training.of(Joined)
    if not joining:
        return (
            "in that time no process of it has called init_process_group: give it longer (--within), or look whether "
            "its launcher waits for other nodes"
        )
    where = joining[0].address and f" at {joining[0].address}"
    if len(joined) < len(joining):
        return f"{len(joining) - len(joined)} of {len(joining)} ranks wait in init_process_group{where}"
    return f"all {len(joined)} ranks have joined, and not all of them have made a step"
