"""``ddpdoctor stuck``: a training that hangs now, and that was started without ddpdoctor."""

from __future__ import annotations

import sys

import click

from ddpdoctor.cli.terminal import progress, say, style
from ddpdoctor.findings import Severity
from ddpdoctor.registry import load_checks

WINDOW = 5.0


@click.command()
@click.argument("pids", nargs=-1, type=click.IntRange(1), metavar="[PID]")
@click.option(
    "--seconds", type=click.FloatRange(2, 600), default=WINDOW, show_default=True, metavar="SECONDS",
    help="How long the ranks are looked at: what stays where it is meanwhile stands.",
)  # fmt: skip
def stuck(pids: tuple[int, ...], seconds: float) -> None:
    """Say where a training hangs that is running now.

    PID is a rank, or what has started the ranks; where one training runs on this host, no PID is needed. The ranks are
    looked at from outside: nothing is stopped, ended or changed.
    """
    from ddpdoctor.report.redact import redacted
    from ddpdoctor.report.text import result_text
    from ddpdoctor.stuck.examine import examine, find
    from ddpdoctor.stuck.text import ranks_text

    job = find(pids)
    progress(f"looking at {len(job.ranks)} ranks for {seconds:g} s")
    examined = examine(job, load_checks(), seconds)
    progress("")
    look = style(sys.stdout)
    if examined.refused:
        say(examined.refused, err=True)
    say(ranks_text(examined.ranks, look) + "\n")
    report = redacted(examined.verdict.report)
    for each in report.results:
        say(result_text(each, look) + "\n")
    say(examined.verdict.said)
    sys.exit(report.exit_status(Severity.WARNING))
