"""``ddpdoctor run``: the user's own command, watched."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddpdoctor.cli.options.configured import Configured
from ddpdoctor.cli.options.required import require_command, require_writable
from ddpdoctor.cli.screen.terminal import say, style
from ddpdoctor.registry import load_checks

if TYPE_CHECKING:
    from ddpdoctor.watch.dispatcher import Found


@click.command(cls=Configured, context_settings={"allow_interspersed_args": False})
@click.option(
    "--hang-after", type=click.FloatRange(min=1), default=30, show_default=True, metavar="SECONDS",
    help="How long a rank waits for others before a hang is looked into.",
)  # fmt: skip
@click.option(
    "--on-finding", type=click.Choice(["warn", "raise", "log"]), default="warn", show_default=True,
    help="Print a finding at once; or also end the training; or only write the report.",
)  # fmt: skip
@click.option(
    "--report",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Write a report there: JSON, a page where it ends in .html, Markdown where in .md.",
)
@click.option(
    "--profile", type=click.IntRange(min=1), metavar="STEPS",
    help="Measure so many steps closely; at the end, show where the steps of each rank went.",
)  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Print findings only: no line at the end on what was watched.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(  # noqa: PLR0913 - its options
    hang_after: float,
    on_finding: str,
    report: str | None,
    profile: int | None,
    command: tuple[str, ...],
    *,
    quiet: bool,
) -> None:
    """Start your training and watch it while it runs.

    COMMAND is what starts the training: torchrun ..., accelerate launch ..., srun ..., python train.py. What it prints
    stays as it is; ddpdoctor speaks on standard error.

    The exit status is that of COMMAND; 1 if --on-finding raise ended it.
    """
    from ddpdoctor.report.text import result_text
    from ddpdoctor.watch.reporting import BY, steps_text, watched_text, write_report
    from ddpdoctor.watch.run import session, watched
    from ddpdoctor.watch.settings import Settings

    require_command(command, "run")
    if report is not None:
        require_writable("--report", Path(report))
    with session() as folder:
        settings = Settings(session=folder, hang_after=hang_after, on_finding=on_finding, profile=profile or 0)
        status, monitor, seconds = watched(command, settings, load_checks(), printer(on_finding))
        if report is not None:
            write_report(report, monitor, seconds)
        ending = watched_text(monitor, status, style(sys.stderr))
        anatomy = steps_text(monitor, style(sys.stderr)) if profile else ""
    for crash in monitor.crashes:
        say(result_text(crash, style(sys.stderr), by=BY), err=True)
    if anatomy:
        say(anatomy, err=True)
    if not quiet and on_finding != "log":
        say(ending, err=True)
    sys.exit(status)


def printer(on_finding: str) -> Callable[[Found], None]:
    """Return what is called with each finding as it is made."""
    from ddpdoctor.watch.reporting import finding_text

    def tell(found: Found) -> None:
        if on_finding != "log":
            say(finding_text(found, style(sys.stderr)), err=True)

    return tell
