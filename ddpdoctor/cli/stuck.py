"""``ddpdoctor stuck``: a training that hangs now, and that was started without ddpdoctor."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ddpdoctor.cli.explaining.looks import flight, show, show_launcher, show_reports
from ddpdoctor.cli.explaining.reports import read, told_by
from ddpdoctor.cli.options.required import require_writable
from ddpdoctor.cli.screen.terminal import progress
from ddpdoctor.facets import BadTarget
from ddpdoctor.stuck.hosts import SSH, look_on, named

WINDOW = 5.0
REFUSED = 3  # hosts whose answers a line has


@click.command()
@click.argument("names", nargs=-1, metavar="[PID|FILE...]")
@click.option(
    "--seconds", type=click.FloatRange(2, 600), default=WINDOW, show_default=True, metavar="SECONDS",
    help="How long the ranks are looked at: one that does not move meanwhile counts as stuck.",
)  # fmt: skip
@click.option(
    "--hosts", metavar="HOST,...", help="Look on these hosts, each by a command there, and put together what they see."
)
@click.option(
    "--via", default=SSH, show_default=True, metavar="COMMAND",
    help="What runs a command on a host, whose name takes the place of {}; ddpdoctor is to be where it is here.",
)  # fmt: skip
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--report", type=click.Path(dir_okay=False), metavar="FILE", help="Write a report in JSON there, too.")
@click.option("--verbose", is_flag=True, help="Show long findings in full.")
def stuck(  # noqa: PLR0913 - one for each option
    names: tuple[str, ...], *, seconds: float, hosts: str | None, via: str, form: str, report: str | None, verbose: bool
) -> None:
    """Find where a training that is running now hangs.

    PID is a rank, or what has started the ranks; where one training runs on this host, none is needed. The ranks are
    looked at from outside: none is stopped, ended or changed.

    FILE is what --report has written on another host: several are put together, and give one verdict.
    """
    from ddpdoctor.stuck.examine import examine, find, waiting_launcher

    if report is not None:
        require_writable("--report", Path(report))
    if hosts is not None:
        if names:
            raise BadTarget("--hosts takes no PID and no FILE: processes have other numbers on each host")
        reports, all_looked = looks(hosts, via, seconds)
        status = show_reports(told_by(reports), form, report, verbose=verbose)
        sys.exit(status or (0 if all_looked else 2))
    if names and not all(each.isdigit() for each in names):
        sys.exit(show_reports(read(names), form, report, verbose=verbose))
    pids = [int(each) for each in names]
    try:
        job = find(pids)
    except BadTarget:
        if (waits := waiting_launcher(pids)) is None:
            raise
        sys.exit(show_launcher(waits, form, report, verbose=verbose))
    progress(f"looking at {len(job.ranks)} ranks for {seconds:g} s")
    seen, refused = examine(job, seconds)
    progress("")
    if refused:
        click.echo(f"ddpdoctor: {refused}", err=True)
    told = flight(job) if form == "text" else ""
    sys.exit(show(seen, seconds, form, report, verbose=verbose, flight=told))


def looks(hosts: str, via: str, seconds: float) -> tuple[list[tuple[str, str]], bool]:
    """Look on several hosts; return the report of each one that has given it, and whether all have.

    Raises:
        BadTarget: the hosts, or the way to them, cannot be used, or none of them has given a look.
    """
    listed = named(hosts)
    progress(f"looking on {len(listed)} hosts for {seconds:g} s")
    looked = tuple(look_on(listed, via, seconds))
    progress("")
    refused = [f"{each.host}: {each.why}" for each in looked if each.why]
    if len(refused) == len(looked):
        raise BadTarget(f"no look on any host; {'; '.join(refused[:REFUSED])}")
    for said in refused:
        click.echo(f"ddpdoctor: no look on {said}", err=True)
    return [(each.host, each.report) for each in looked if each.report], not refused
