"""A command of the user's, watched from its start to its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.findings import Severity
from ddpdoctor.launch.command import start, wait
from ddpdoctor.launch.signals import forwarding
from ddpdoctor.lint.command import found_in_command
from ddpdoctor.watch.dispatcher import Found
from ddpdoctor.watch.in_source import found_in_source
from ddpdoctor.watch.monitor.launcher import end_those_without_ranks
from ddpdoctor.watch.monitor.monitor import Monitor
from ddpdoctor.watch.reporting import summary
from ddpdoctor.watch.stale_sessions import held

if TYPE_CHECKING:
    from ddpdoctor.facets import Check
    from ddpdoctor.watch.settings import Settings

POLL = 0.2  # seconds
PATIENCE = 3.0  # seconds for ranks to end after Ctrl-C
GRACE = 10.0  # seconds for a command that was asked to end
BOOT = Path(__file__).with_name("boot")


@contextmanager
def session() -> Iterator[str]:
    """Yield a folder for one run; it is gone at the end, and those of runs that were killed are gone before."""
    with tempfile.TemporaryDirectory(prefix="ddpdoctor-", ignore_cleanup_errors=True) as folder, held(Path(folder)):
        yield folder


def watched(
    command: Sequence[str], settings: Settings, checks: tuple[Check, ...], say: Callable[[Found], None]
) -> tuple[int, Monitor, float]:
    """Run a command to its end, watched; return its exit status, the monitor, the seconds.

    Raises:
        BadTarget: there is no such command.
    """
    started = time.monotonic()
    monitor = Monitor(settings, checks, say)
    with _reporting_a_crash():
        monitor.before = [Found(each.check, each.finding) for each in found_in_command(command, checks)]
        for each in monitor.before:
            say(each)
    process = start(command, watched_environ(settings))
    ended_by_us = False
    with forwarding(process) as received:
        with _reporting_a_crash():
            while process.poll() is None:
                monitor.interrupted = bool(received.interrupted)
                monitor.poll()
                for line in monitor.lines(process.pid):
                    sys.stderr.write(f"{line}\n" if settings.on_finding != "log" else "")
                _end_the_deaf(monitor, received.interrupted, process.pid)
                if settings.on_finding == "raise" and not ended_by_us and is_serious(monitor):
                    ended_by_us = True
                    _end(process, monitor)
                wait(process, POLL)
        process.wait()
        with _reporting_a_crash():
            monitor.end(process.returncode, asked_at=received.first)
            for line in monitor.lines_at_end(is_last=True):
                sys.stderr.write(f"{line}\n" if settings.on_finding != "log" else "")
            if process.returncode == 0 and not is_serious(monitor):
                monitor.tell(found_in_source(monitor.trainings, checks))
    status = process.returncode if process.returncode >= 0 else 128 - process.returncode
    return 1 if ended_by_us else status, monitor, time.monotonic() - started


@contextmanager
def _reporting_a_crash() -> Iterator[None]:
    """Report a crash of the watch: it ends the watch, and the command goes on to its own end."""
    try:
        yield
    except Exception as exc:  # noqa: BLE001 - whatever it is, a training must not be lost for it
        where = traceback.extract_tb(exc.__traceback__)[-1]
        sys.stderr.write(
            f"ddpdoctor: the watch has crashed, the command goes on without it: {type(exc).__name__}: {exc} "
            f"({where.filename}:{where.lineno}); report it with this line\n"
        )


def _end_the_deaf(monitor: Monitor, interrupted: list[float], pid: int) -> None:
    """After Ctrl-C, end ranks that cannot hear it: a rank in a collective that hangs does not come back to Python.

    torchrun waits 30 seconds for them. Nothing is done where a rank still works, on its last checkpoint say. Of several
    nodes, torchrun itself is deaf while it waits for the others; one that has no rank is ended.
    """
    waited = time.monotonic() - interrupted[0] if interrupted else 0.0
    number = signal.SIGTERM if waited < 2 * PATIENCE else signal.SIGKILL
    if waited > PATIENCE:
        for rank in monitor.deaf():
            monitor.has_ended_the_deaf = True
            rank.send(number)
        if not monitor.ranks.alive():
            end_those_without_ranks(pid, number)


def watched_environ(settings: Settings) -> Mapping[str, str]:
    """Return the environment in which every Python process of a command is watched."""
    environ = dict(os.environ)
    settings.export(environ)
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(BOOT), environ.get("PYTHONPATH", ""))))
    return environ


def is_serious(monitor: Monitor) -> bool:
    """Whether something was found that is more than a note."""
    return any((found.finding.severity or Severity.NOTE) >= Severity.WARNING for found in monitor.found)


def _end(process: subprocess.Popen[bytes], monitor: Monitor) -> None:
    """End a training: its ranks at their next step with an error of their own; after a while, all by signals."""
    monitor.stop_ranks(summary(monitor))
    if not monitor.hung:
        wait(process, GRACE)
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            process.send_signal(number)
            wait(process, GRACE)
        monitor.ranks.send(number)  # a launcher that is ended so may leave them behind
