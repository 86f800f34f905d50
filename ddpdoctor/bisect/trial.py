"""One run of the user's command with some settings changed: whether its start works, and how long that takes."""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.bisect.changes import Change, applied
from ddpdoctor.bisect.clock import STEPS, Clock, is_complete
from ddpdoctor.bisect.reason import Ending, is_of_the_program, reason
from ddpdoctor.files.journal import undo
from ddpdoctor.jobs.rank import end_with_parent
from ddpdoctor.launch.command import start, wait
from ddpdoctor.launch.signals import deferred
from ddpdoctor.watch.command.ending import end_all
from ddpdoctor.watch.events import Joining
from ddpdoctor.watch.monitor.monitor import Monitor
from ddpdoctor.watch.run import session, watched_environ
from ddpdoctor.watch.settings import Rehearsal, Settings

if TYPE_CHECKING:
    from ddpdoctor.facets import Check

POLL = 0.05  # seconds
FEWEST = 5  # steps, with fewer of which nothing is measured
GRACE = 3.0  # seconds for the ranks to end at their next step


@dataclass(frozen=True, slots=True)
class Trial:
    """What a run showed.

    ``start`` is from init_process_group to the first step of all ranks, ``step`` of a step after it, in seconds; None
    where that could not be measured. ``said`` is how it failed. ``ranks`` were seen here, of ``world`` that there are;
    ``elsewhere`` are those that the launcher starts on other hosts.
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
    elsewhere: int = 0

    @property
    def works(self) -> bool:
        """Whether the training started."""
        return self.ending is Ending.STARTED


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
        monitor.end(status or 0)
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
    here = [each.local_size for each in joining if each.local_size]
    about = (
        ",".join(sorted({each.backend.lower() for each in joining if each.backend})),
        len(monitor.training.by_rank(Joining)) or len({each.pid for each in joining}),
        max(world, max((each.launched or 0 for each in joining), default=0)),
        max(0, world - max(here)) if here else 0,
    )
    lines = [line.strip() for line in output.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    if clock.first or (status == 0 and monitor.joined) or (late and _moves(monitor, clock)):
        begun = min((each.time for each in joining), default=0.0)
        start = clock.first - begun if clock.first else None
        return Trial(changes, Ending.STARTED, seconds, start, _step(monitor, clock), "", *about)
    ending, said = reason(monitor, status, lines, late=late)
    return Trial(changes, ending, seconds, None, None, said, *about)


def _step(monitor: Monitor, clock: Clock) -> float | None:
    """Return the seconds of a step: as the ranks have written it down, else as it was seen from outside."""
    if ranks := monitor.steps:
        return max(statistics.median(each.a_step("total")) for each in ranks)
    return (clock.last - clock.first) / clock.steps if clock.steps >= FEWEST else None


def _moves(monitor: Monitor, clock: Clock) -> bool:
    """Whether all ranks are there and got on in the end: a training that makes no steps, or slow ones."""
    return is_complete(monitor) and time.time() - clock.moved < GRACE
