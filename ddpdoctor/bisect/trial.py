"""One run of the user's command with some settings changed: whether its start works, and how long that takes."""

from __future__ import annotations

import enum
import os
import re
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from ddpdoctor.areas import shows_network
from ddpdoctor.bisect.changes import Change, applied
from ddpdoctor.findings import Severity
from ddpdoctor.jobs.rank import end_with_parent
from ddpdoctor.launch.command import start, wait
from ddpdoctor.launch.signals import deferred
from ddpdoctor.logs.examination import quick_examination
from ddpdoctor.logs.read.sources import Origin
from ddpdoctor.watch.events import Failed, Joined, Joining
from ddpdoctor.watch.monitor.monitor import Monitor
from ddpdoctor.watch.rehearsal.file_journal import undo
from ddpdoctor.watch.run import session, watched_environ
from ddpdoctor.watch.settings import Rehearsal, Settings

if TYPE_CHECKING:
    from ddpdoctor.facets import Check
    from ddpdoctor.watch.dispatcher import Found

POLL = 0.05  # seconds
STEPS = 200  # that are measured, at most
MEASURE = 5.0  # seconds of steps that are measured, at most
FEWEST = 5  # steps, with fewer of which nothing is measured
GRACE = 3.0  # seconds for the ranks to end at their next step
DEAD = 10.0  # seconds for killed processes to be gone
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


@dataclass(frozen=True, slots=True)
class Trial:
    """What a run showed.

    ``start`` is from init_process_group to the first step of all ranks, ``step`` of a step after it, in seconds; None
    where that could not be measured. ``said`` is how it failed. ``ranks`` were seen here, of ``world`` that there are.
    """

    changes: tuple[Change, ...]
    ending: Ending
    seconds: float
    start: float | None = None
    step: float | None = None
    said: str = ""
    backend: str = ""
    ranks: int = 0
    world: int = 0

    @property
    def works(self) -> bool:
        """Whether the training started."""
        return self.ending is Ending.STARTED


@dataclass(slots=True)
class Clock:
    """When all ranks had made their first step, and how many they have made since."""

    first: float = 0.0
    steps: int = 0
    last: float = 0.0
    moved: float = 0.0
    counts: tuple[int, ...] = ()

    def look(self, monitor: Monitor) -> bool:
        """Look at the counters; return whether enough was measured."""
        ranks, now = monitor.counts.values(), time.time()
        counts = tuple(int(each[name]) for each in ranks for name in ("steps", "forwards", "communications", "batches"))
        if counts != self.counts:
            self.counts, self.moved = counts, now
        if not is_complete(monitor) or not (least := min((int(each["steps"]) for each in ranks), default=0)):
            return False
        if not self.first:
            self.first, self.last, self.steps = now, now, 0
            self._before = least
        elif least - self._before > self.steps:
            self.steps, self.last = least - self._before, now
        return self.steps >= STEPS or (now - self.first > MEASURE and self.steps >= 1)

    _before: int = 0


def try_out(
    command: Sequence[str],
    changes: Iterable[Change],
    checks: tuple[Check, ...],
    seconds: float,
    progress: Callable[[float], None],
) -> Trial:
    """Run the command until its first steps are made, it fails, or so many seconds are over; then end all of it.

    It runs as a rehearsal does: files that it made are removed, and those that it changed are as before.

    Raises:
        BadTarget: there is no such command.
    """
    changes, began = tuple(changes), time.monotonic()
    with session() as folder:
        rehearsal = Rehearsal(batches=STEPS + FEWEST, epochs=1, steps=STEPS + FEWEST)
        settings = Settings(session=folder, hang_after=max(5.0, seconds / 2), on_finding="log", rehearsal=rehearsal)
        monitor, clock, output = Monitor(settings, checks, lambda _: None), Clock(), Path(folder) / "output"
        with output.open("wb") as file:
            there = applied(watched_environ(settings), changes)
            process = start(
                command,
                there,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
            try:
                late = _follow(process, monitor, clock, began + seconds, progress)
                status = process.poll()
            finally:
                with deferred():
                    end_all(process, folder)
                    undo(Path(folder))
        monitor.end(status or 0, asked=status is None)
        return _trial(changes, monitor, clock, output, status, time.monotonic() - began, late=late)


def _follow(
    process: subprocess.Popen[bytes], monitor: Monitor, clock: Clock, until: float, progress: Callable[[float], None]
) -> bool:
    """Poll until enough was measured, the command ends or its time is up; return whether it was the time."""
    while process.poll() is None and time.monotonic() < until:
        monitor.poll()
        if clock.look(monitor) or any(map(is_of_the_program, monitor.found)):
            break
        progress(until - time.monotonic())
        wait(process, POLL)
    late = process.poll() is None and time.monotonic() >= until
    clock.look(monitor)
    if process.poll() is None and clock.first:
        monitor.stop_ranks("")
        wait(process, GRACE)
    return late


def end_all(process: subprocess.Popen[bytes], folder: str) -> None:
    """Kill the command and all that it started, wherever that went: each inherits the session's name.

    torchrun starts each rank in a session of its own, and ranks whose launcher is gone belong to nobody.
    """
    until = time.monotonic() + DEAD
    while (left := _left(process, folder)) and time.monotonic() < until:
        for each in left:
            with suppress(psutil.Error):
                each.kill()
        psutil.wait_procs(left, 1.0)
    process.wait()


def _left(process: subprocess.Popen[bytes], folder: str) -> list[psutil.Process]:
    found = []
    for each in psutil.process_iter():
        with suppress(psutil.Error):
            is_ours = each.pid == process.pid or (each.pid != os.getpid() and _is_of(each, folder))
            if is_ours and each.status() != psutil.STATUS_ZOMBIE:
                found.append(each)
    return found


def _is_of(process: psutil.Process, folder: str) -> bool:
    return folder in process.environ().get("DDPDOCTOR_WATCH", "")


def is_complete(monitor: Monitor) -> bool:
    """Whether all ranks that this host is to have are there and have joined."""
    joining, joined = monitor.training.of(Joining), monitor.training.by_rank(Joined)
    wanted = max((each.local_size or each.world_size for each in joining), default=0)
    return len(joined) >= max(1, wanted)


def _trial(  # noqa: PLR0913, PLR0917 - what is known at the end of a run
    changes: tuple[Change, ...],
    monitor: Monitor,
    clock: Clock,
    output: Path,
    status: int | None,
    seconds: float,
    *,
    late: bool,
) -> Trial:
    joining = monitor.training.of(Joining)
    world = max((each.world_size for each in joining), default=0)
    about = (
        ",".join(sorted({each.backend.lower() for each in joining if each.backend})),
        len(monitor.training.by_rank(Joining)) or len({each.pid for each in joining}),
        max(world, max((each.launched or 0 for each in joining), default=0)),
    )
    lines = [line.strip() for line in output.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    if clock.first or (status == 0 and monitor.joined) or (late and _moves(monitor, clock)):
        begun = min((each.time for each in joining), default=0.0)
        start = clock.first - begun if clock.first else None
        return Trial(changes, Ending.STARTED, seconds, start, _step(monitor, clock), "", *about)
    ending, said = _why(monitor, status, lines, late=late)
    return Trial(changes, ending, seconds, None, None, said, *about)


def _step(monitor: Monitor, clock: Clock) -> float | None:
    """Return the seconds of a step: as the ranks have written it down, else as it was seen from outside."""
    if ranks := monitor.steps:
        return max(statistics.median(each.a_step("total")) for each in ranks)
    return (clock.last - clock.first) / clock.steps if clock.steps >= FEWEST else None


def _moves(monitor: Monitor, clock: Clock) -> bool:
    """Whether all ranks are there and got on in the end: a training that makes no steps, or slow ones."""
    return is_complete(monitor) and time.time() - clock.moved < GRACE


def _why(monitor: Monitor, status: int | None, lines: list[str], *, late: bool) -> tuple[Ending, str]:
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
    examined = quick_examination()
    examined.read(Origin("its output"), ["\n".join(lines).encode()])
    answer = examined.answer()
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
