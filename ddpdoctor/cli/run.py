"""``ddpdoctor run``: the user's own command, watched."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddpdoctor.check import BadTarget
from ddpdoctor.cli.forward import forwarding
from ddpdoctor.cli.show import write_whole
from ddpdoctor.model import Report, Result, Severity, Status
from ddpdoctor.registry import load_checks
from ddpdoctor.report.data import as_json
from ddpdoctor.report.redact import redacted
from ddpdoctor.report.text import result_text

if TYPE_CHECKING:
    from ddpdoctor.watch.judge import Found
    from ddpdoctor.watch.monitor import Monitor
    from ddpdoctor.watch.settings import Settings

POLL = 0.2  # seconds
GRACE = 10.0  # seconds for a command that was asked to end


@click.command(context_settings={"ignore_unknown_options": True})
@click.option(
    "--hang-after", type=click.FloatRange(min=1), default=30, show_default=True, metavar="SECONDS",
    help="How long a rank waits for others before a hang is looked into.",
)  # fmt: skip
@click.option(
    "--on-finding", type=click.Choice(["warn", "raise", "log"]), default="warn", show_default=True,
    help="Print a finding at once; or also end the training; or only write the report.",
)  # fmt: skip
@click.option("--report", type=click.Path(dir_okay=False), metavar="FILE", help="Write a report in JSON there.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(hang_after: float, on_finding: str, report: str | None, command: tuple[str, ...]) -> None:
    """Watch the training that COMMAND starts: torchrun ..., accelerate launch ..., srun ..., python train.py.

    The exit status is that of the command; 1 if --on-finding raise ended it.
    """
    from ddpdoctor.watch.settings import Settings

    if report is not None and not Path(report).absolute().parent.is_dir():
        raise BadTarget(f"--report {report}: there is no folder {Path(report).parent}")
    with session() as folder:
        settings = Settings(session=folder, hang_after=hang_after, on_finding=on_finding)
        status, monitor, seconds = watched(command, settings, says(on_finding))
        if report is not None:
            write_report(report, monitor, seconds)
    for fault in monitor.faults:
        click.echo(f"ddpdoctor: {fault}", err=True)
    sys.exit(status)


@contextmanager
def session() -> Iterator[str]:
    """Give a folder for one run; it is gone at the end, and those of runs that were killed are gone before."""
    from ddpdoctor.watch.leftovers import held

    with tempfile.TemporaryDirectory(prefix="ddpdoctor-", ignore_cleanup_errors=True) as folder, held(Path(folder)):
        yield folder


def watched(command: Sequence[str], settings: Settings, say: Any) -> tuple[int, Monitor, float]:
    """Run a command to its end, watched; give its exit status, the monitor, the seconds.

    Raises:
        BadTarget: there is no such command.
    """
    from ddpdoctor.watch.monitor import Monitor

    started = time.monotonic()
    monitor = Monitor(settings, load_checks(), say)
    process = start(command, settings)
    ended_by_us = False
    with forwarding(process):
        while process.poll() is None:
            monitor.poll()
            if settings.on_finding == "raise" and not ended_by_us and serious(monitor):
                ended_by_us = True
                end(process, monitor)
            wait(process, POLL)
        monitor.end(process.returncode)
    status = process.returncode if process.returncode >= 0 else 128 - process.returncode
    return 1 if ended_by_us else status, monitor, time.monotonic() - started


def start(command: Sequence[str], settings: Settings, **options: Any) -> subprocess.Popen[bytes]:
    """Start a command so that every Python process of it is watched.

    Raises:
        BadTarget: there is no such command.
    """
    environ = dict(os.environ)
    settings.export(environ)
    boot = str(Path(__file__).parents[1] / "watch" / "boot")
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, (boot, environ.get("PYTHONPATH", ""))))
    try:
        return subprocess.Popen(command, env=environ, **options)
    except OSError as exc:
        raise BadTarget(f"{command[0]}: {exc.strerror}") from exc


def serious(monitor: Monitor) -> bool:
    """Say whether something was found that is more than a note."""
    return any((found.finding.severity or Severity.NOTE) >= Severity.WARNING for found in monitor.found)


def wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait for the end of a process, for so long at most."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return


def end(process: subprocess.Popen[bytes], monitor: Monitor) -> None:
    """End a training: its ranks at their next step with an error of their own; after a while, all by signals."""
    monitor.stop_ranks(summary(monitor))
    if not monitor.hung:
        wait(process, GRACE)
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            process.send_signal(number)
            wait(process, GRACE)
        monitor.signal_ranks(number)  # a launcher that is ended so may leave them behind


def finding_text(found: Found, *, colour: bool = False) -> str:
    """Give a finding as the report has it."""
    return result_text(redacted(as_result(found)), width=shutil.get_terminal_size((100, 24)).columns, colour=colour)


def summary(monitor: Monitor) -> str:
    """Give all findings so far as text."""
    return "\n".join(finding_text(found) for found in monitor.found)


def write_report(path: str, monitor: Monitor, seconds: float) -> None:
    """Write what was found as JSON."""
    report = redacted(as_report(monitor, seconds))
    facts = {"watched": monitor.counts, "watch_failed": monitor.faults}
    write_whole(Path(path), as_json(report, Severity.WARNING, facts))


def as_result(*found: Found) -> Result:
    """Give findings of one check as its result."""
    check = found[0].check
    findings = tuple(each.finding for each in found)
    return Result(check.code, check.slug, check.area, check.title, Status.FAILED, findings)


def as_report(monitor: Monitor, seconds: float) -> Report:
    """Give all that was found, by check, in the order in which it was found."""
    by_check: dict[str, list[Found]] = {}
    for found in monitor.found:
        by_check.setdefault(found.check.code, []).append(found)
    return Report(tuple(as_result(*group) for group in by_check.values()), (), seconds)


def says(on_finding: str) -> Any:
    """Give what is called with each finding as it is made."""

    def say(found: Found) -> None:
        if on_finding != "log":
            colour = sys.stderr.isatty() and "NO_COLOR" not in os.environ
            click.echo(f"ddpdoctor:\n{finding_text(found, colour=colour)}", err=True)

    return say
