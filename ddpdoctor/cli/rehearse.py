"""``ddpdoctor check -- COMMAND``: the user's own launch, for a few short epochs, watched; then a clean stop."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from ddpdoctor.cli.run import POLL, session, start, wait
from ddpdoctor.watch.events import Joined, Joining

if TYPE_CHECKING:
    from ddpdoctor.check import Check
    from ddpdoctor.watch.judge import Found
    from ddpdoctor.watch.monitor import Monitor

LONGEST = 60.0  # seconds for a rehearsal, start included
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
class Rehearsed:
    """What a rehearsal found, why it could not be used, if so, and what was done otherwise than the script says."""

    found: tuple[Found, ...]
    fault: str = ""
    note: str = ""


def rehearse(command: Sequence[str], checks: tuple[Check, ...], limit: float, *, no_gpu: bool) -> Rehearsed:
    """Run the command with the watch on, epochs cut short, its output kept from the terminal.

    It runs in a process group of its own, which is killed when the rehearsal is over: nothing is left behind. Files
    that it made are removed then, and those that it changed are as before.

    Raises:
        BadTarget: there is no such command.
    """
    from ddpdoctor.watch.monitor import Monitor
    from ddpdoctor.watch.settings import Rehearsal, Settings
    from ddpdoctor.watch.undo import undo

    with session() as folder:
        settings = Settings(session=folder, hang_after=HANG_AFTER, on_finding="log", rehearsal=Rehearsal(no_gpu=no_gpu))
        monitor = Monitor(settings, checks, lambda _: None)
        output = Path(folder) / "output"
        with output.open("wb") as file:
            process = start(command, settings, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
            try:
                in_time = _follow(process, monitor, time.monotonic() + min(limit, LONGEST))
            finally:
                _kill(process)
                undo(Path(folder))
        monitor.end(process.returncode if in_time else 0)
        name = " ".join(command)
        if no_gpu and (said := wants_gpu(monitor.first_failure())):
            found = [each for each in monitor.found if each not in monitor.explained]
            return Rehearsed(
                tuple(found), f"{name} is not rehearsed: it needs a GPU, and this machine has none: {said}"
            )
        fault = _fault(name, process, monitor, output, in_time=in_time)
        return Rehearsed(tuple(monitor.found), fault, _note(name, monitor))


def _follow(process: subprocess.Popen[bytes], monitor: Monitor, until: float) -> bool:
    """Poll until the command ends, or hangs, or its time is up; say whether it ended by itself."""
    ranks_left = 0.0
    while process.poll() is None and time.monotonic() < until and not monitor.hung:
        monitor.poll()
        wait(process, POLL)
        if not monitor.joined or len(_children(process)):
            ranks_left = 0.0
        elif (ranks_left := ranks_left or time.monotonic()) < time.monotonic() - GRACE:
            break  # the launcher waits for what a rank that has ended early will never tell
    if process.poll() is None and not monitor.hung:
        monitor.stop_ranks("")
        wait(process, GRACE)
        monitor.poll()
    return process.poll() is not None


def _children(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """List the processes that the command has started and that are there, the keeper of shared memory aside."""
    with suppress(psutil.Error):
        found = psutil.Process(process.pid).children(recursive=True)
        return [each for each in found if each.is_running() and "resource_tracker" not in " ".join(each.cmdline())]
    return []


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the command and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def wants_gpu(failure: str) -> str:
    """Give the failure of a rank that is only for want of a GPU; empty for any other."""
    return failure if NO_GPU.search(failure) else ""


def _note(name: str, monitor: Monitor) -> str:
    """Say that gloo stood in for NCCL."""
    asked = next((each for each in monitor.training.of(Joining) if "nccl" in each.backend.lower()), None)
    if asked is None or all(each.backend != "gloo" for each in monitor.training.of(Joined)):
        return ""
    return f"note: the rehearsal of {name} ran over gloo, where the script says nccl ({asked.site}): no GPU here"


def _fault(name: str, process: subprocess.Popen[bytes], monitor: Monitor, output: Path, *, in_time: bool) -> str:
    """Say why the rehearsal shows nothing; empty where it ran, or where a check has told what is wrong."""
    if in_time and process.returncode and not monitor.found:
        lines = [line for line in output.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        said = monitor.first_failure() or (lines[-1].strip() if lines else "it printed nothing")
        return f"the rehearsal of {name} ended with status {process.returncode}: {said}"
    if not monitor.joined:
        return f"the rehearsal of {name} saw no rank: no process of it joined a process group"
    return ""
