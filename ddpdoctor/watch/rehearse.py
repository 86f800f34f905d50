"""``ddpdoctor check -- COMMAND``: the user's own launch, for a few short epochs, watched; then a clean stop."""

from __future__ import annotations

import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from ddpdoctor.files.journal import undo
from ddpdoctor.findings import Rehearsed, Result
from ddpdoctor.jobs.rank import end_with_parent
from ddpdoctor.launch.command import start, wait
from ddpdoctor.launch.signals import deferred
from ddpdoctor.watch.command.command_output import said_by
from ddpdoctor.watch.command.ending import end_all
from ddpdoctor.watch.events import EpochEnded, Joined, Joining
from ddpdoctor.watch.monitor.monitor import Monitor
from ddpdoctor.watch.reporting import all_results, as_result
from ddpdoctor.watch.run import POLL, session, watched_environ
from ddpdoctor.watch.settings import Rehearsal, Settings

if TYPE_CHECKING:
    from ddpdoctor.facets import Check

HANG_AFTER = 8.0
# What torch and Lightning say on a machine without a GPU, and only there.
NO_GPU = re.compile(
    r"Torch not compiled with CUDA enabled|Found no NVIDIA driver on your system|No CUDA GPUs are available"
    r"|no attribute '_cuda_\w+'|on a CUDA device but torch\.cuda\.is_available\(\) is False"
    r"|No supported gpu backend found"
    r"|arguments only work with .* but got device_ids .* and module parameters \{device\(type='cpu'\)\}"
)
GRACE = 3.0  # seconds for the ranks to end at their next step, when time is up


@dataclass(frozen=True, slots=True)
class RehearsalResult:
    """What a rehearsal showed: how it ended for each check that watches, how far it came, why it shows nothing."""

    results: tuple[Result, ...]
    rehearsed: Rehearsed | None
    fault: str


def rehearse(
    command: Sequence[str], checks: tuple[Check, ...], ends_at: float, progress: Callable[[str], None], *, no_gpu: bool
) -> RehearsalResult:
    """Run the command with the watch on, epochs cut short, its output kept from the terminal.

    It runs in a process group of its own, which is killed when the rehearsal is over: nothing is left behind. Files
    that it made are removed then, and those that it changed are as before. ``progress`` is told how far it has come.

    Raises:
        BadTarget: there is no such command.
    """
    started = time.monotonic()
    with session() as folder:
        settings = Settings(session=folder, hang_after=HANG_AFTER, on_finding="log", rehearsal=Rehearsal(no_gpu=no_gpu))
        monitor = Monitor(settings, checks, lambda _: None)
        output = Path(folder) / "output"
        with output.open("wb") as file:
            process = start(
                command,
                watched_environ(settings),
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
            try:
                late = _follow(process, monitor, ends_at - GRACE, progress)
                ended = process.poll() is not None
            finally:
                with deferred():
                    end_all(process, folder)
                    undo(Path(folder))
        monitor.end(process.returncode if ended else 0)
        done = _rehearsed(command, monitor, time.monotonic() - started)
        if no_gpu and (said := wants_gpu(monitor.first_failure())):
            found = tuple(as_result(each) for each in monitor.found if each not in monitor.explained)
            fault = f"{done.command} is not rehearsed: it needs a GPU, and this machine has none: {said}"
            return RehearsalResult(found, None, fault)
        fault = _late(done) if late else _fault(done, monitor, process.returncode if ended else None, output)
        return RehearsalResult(all_results(monitor, checks), done if done.ranks else None, fault)


def _follow(process: subprocess.Popen[bytes], monitor: Monitor, until: float, progress: Callable[[str], None]) -> bool:
    """Poll until the command ends, or hangs, or its time is up; say whether it was the time."""
    ranks_left = 0.0
    while process.poll() is None and time.monotonic() < until and not monitor.hung:
        monitor.poll()
        progress(_progress(monitor, until - time.monotonic()))
        wait(process, POLL)
        if not monitor.joined or len(_children(process)):
            ranks_left = 0.0
        elif (ranks_left := ranks_left or time.monotonic()) < time.monotonic() - GRACE:
            break  # the launcher waits for what a rank that has ended early will never tell
    late = process.poll() is None and time.monotonic() >= until
    if process.poll() is None and not monitor.hung:
        monitor.stop_ranks("")
        wait(process, GRACE)
        monitor.poll()
    return late


def _progress(monitor: Monitor, left: float) -> str:
    return (
        f"rehearsal: {len(monitor.ranks.counts)} ranks, {_steps(monitor)} steps; {max(0, left):.0f} s left (--timeout)"
    )


def _children(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """List the processes that the command has started and that are there, the keeper of shared memory aside."""
    with suppress(psutil.Error):
        found = psutil.Process(process.pid).children(recursive=True)
        return [each for each in found if each.is_running() and "resource_tracker" not in " ".join(each.cmdline())]
    return []


def wants_gpu(failure: str) -> str:
    """Return the failure of a rank that is only for want of a GPU; empty for any other."""
    return failure if NO_GPU.search(failure) else ""


def _rehearsed(command: Sequence[str], monitor: Monitor, seconds: float) -> Rehearsed:
    """Return how far the ranks came that joined a process group."""
    passes = Counter((each.pid, each.loader) for each in monitor.training.of(EpochEnded, trained=True))
    return Rehearsed(
        " ".join(command),
        ranks=len(monitor.ranks.counts) if monitor.joined else 0,
        epochs=max(passes.values(), default=0),
        steps=_steps(monitor),
        seconds=seconds,
        note=_note(monitor),
    )


def _steps(monitor: Monitor) -> int:
    return int(max((each["steps"] for each in monitor.ranks.counts.values()), default=0))


def _note(monitor: Monitor) -> str:
    """Return a sentence where gloo stood in for NCCL, else nothing."""
    asked = next((each for each in monitor.training.of(Joining) if "nccl" in each.backend.lower()), None)
    if asked is None or all(each.backend != "gloo" for each in monitor.training.of(Joined)):
        return ""
    return f"It ran over gloo, where the script says nccl ({asked.site}): there is no GPU here."


def _late(done: Rehearsed) -> str:
    """Return the sentence for a rehearsal whose time ran out; how far it had come is reported beside it."""
    come = "" if done.ranks else ", when no process of it had joined a process group"
    return f"the rehearsal of {done.command} ran out of time after {done.seconds:.0f} s (--timeout){come}"


def _fault(done: Rehearsed, monitor: Monitor, status: int | None, output: Path) -> str:
    """Return why the rehearsal shows nothing; empty where it ran, or where a check has told what is wrong.

    ``status`` is the exit status of the command; None where it had to be ended.
    """
    if status and not monitor.found:
        said = monitor.first_failure() or said_by(output.read_text(encoding="utf-8", errors="replace").splitlines())
        return f"the rehearsal of {done.command} ended with status {status}: {said}"
    if monitor.hung and not monitor.found:
        return f"the rehearsal of {done.command} hung after {done.steps} steps: each rank waited for another"
    if status is None and not (monitor.found or done.steps or done.epochs) and (said := monitor.first_failure()):
        return f"the rehearsal of {done.command} came to no step: {said}"  # its launcher outlives the ranks that failed
    if not done.ranks:
        return f"the rehearsal of {done.command} saw no rank: no process of it joined a process group"
    return ""
