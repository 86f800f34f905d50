"""What a look at running ranks has seen, printed: of one host, of several, or of a launcher without ranks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddpdoctor.cli.screen.terminal import say, style
from ddpdoctor.facets import BadTarget
from ddpdoctor.findings import Severity
from ddpdoctor.registry import load_checks

if TYPE_CHECKING:
    from ddpdoctor.cli.explaining.reports import Told
    from ddpdoctor.stuck.ranks.jobs import Job
    from ddpdoctor.stuck.told.sighting import Sighting
    from ddpdoctor.stuck.told.verdict import Verdict
    from ddpdoctor.watch.events import LauncherWaits


def show_launcher(event: LauncherWaits, form: str, report: str | None, *, verbose: bool) -> int:
    """Print what keeps a torchrun that has started no rank; and return the exit status."""
    from ddpdoctor.stuck.told.launchers import as_data
    from ddpdoctor.stuck.told.verdict import of_launcher

    decided = of_launcher(event, load_checks(), 0.0)
    return _say(decided, {**as_data(event), "verdict": decided.said}, [], form, report, verbose=verbose)


def flight(job: Job) -> str:
    """Return what the dumps of torch's flight recorder say, or how to have them written; empty where there are none."""
    from ddpdoctor.stuck.told.flight import dumps, pipes

    if paths := dumps(job):
        listed = " ".join(map(str, paths))
        return f"torch's flight recorder ({listed}):\n{compared(paths)}"
    if commands := list(pipes(job)):
        listed = "\n".join(f"  {each}" for each in commands)
        return f"torch's flight recorder can tell more: have each rank write its dump, and run this again:\n{listed}"
    return ""


def compared(paths: tuple[Path, ...]) -> str:
    """Return what the dumps say together; why not, where one of them cannot be read."""
    from ddpdoctor.logs.examination import quick_examination
    from ddpdoctor.logs.flight.dumps import dump_at
    from ddpdoctor.logs.read.sources import sources
    from ddpdoctor.report.answer.text import answer_text

    examined = quick_examination()
    try:
        found = [dump_at(source) for path in paths for source in sources(str(path))]
    except BadTarget as exc:
        return str(exc)
    read_dumps = [each for each in found if each is not None]
    if not read_dumps:
        return "no dump that can be read"
    examined.compare(read_dumps)
    return answer_text(examined.answer(None), style(sys.stdout))


def show_reports(told: Told, form: str, report: str | None, *, verbose: bool) -> int:
    """Put the reports of several hosts together, print what comes of it, and return the exit status.

    Raises:
        BadTarget: they are of different trainings.
    """
    from ddpdoctor.cli.explaining.reports import compared
    from ddpdoctor.stuck.told.launchers import beside, joined
    from ddpdoctor.stuck.told.sighting import apart, merged
    from ddpdoctor.stuck.told.sighting_file import as_data
    from ddpdoctor.stuck.told.text import ranks_text
    from ddpdoctor.stuck.told.verdict import verdict

    sightings, waiting = told
    if late := apart([*(each.at for _, each in sightings), *(each.at for _, each in waiting)]):
        click.echo(f"ddpdoctor: {late}", err=True)
    launchers = [each for _, each in waiting]
    if not sightings:
        decided = joined(launchers, compared(launchers), load_checks())
        return _say(decided, {"verdict": decided.said}, [], form, report, verbose=verbose)
    seen = merged(sightings)
    if not launchers:
        return show(seen, 0.0, form, report, verbose=verbose)
    decided = beside(seen, launchers, load_checks(), verdict(seen, load_checks(), 0.0).report)
    data = {**as_data(seen), "verdict": decided.said}
    return _say(decided, data, [ranks_text(seen, style(sys.stdout)) + "\n"], form, report, verbose=verbose)


def show(  # noqa: PLR0913 - how it is shown
    sighting: Sighting, seconds: float, form: str, report: str | None, *, verbose: bool, flight: str = ""
) -> int:
    """Print where the ranks are, what the checks find, and the verdict; and return the exit status."""
    from ddpdoctor.stuck.told.sighting_file import as_data
    from ddpdoctor.stuck.told.text import ranks_text
    from ddpdoctor.stuck.told.verdict import verdict

    decided = verdict(sighting, load_checks(), seconds)
    data = {**as_data(sighting), "verdict": decided.said}
    lines = [ranks_text(sighting, style(sys.stdout)) + "\n"]
    return _say(decided, data, lines, form, report, verbose=verbose, flight=flight)


def _say(  # noqa: PLR0913 - how it is said
    decided: Verdict,
    seen: dict[str, Any],
    lines: list[str],
    form: str,
    report: str | None,
    *,
    verbose: bool,
    flight: str = "",
) -> int:
    from ddpdoctor.redact import redacted
    from ddpdoctor.report.data import as_json
    from ddpdoctor.report.text import result_text
    from ddpdoctor.report.whole_file import write_whole

    found = redacted(decided.report)
    data = as_json(found, Severity.WARNING, {"stuck": seen})
    if report is not None:
        write_whole(Path(report), data)
    if form == "json":
        click.echo(data, nl=False)
    else:
        look = style(sys.stdout)
        for line in lines:
            say(line)
        for each in found.results:
            say(result_text(each, look, verbose=verbose) + "\n")
        if flight:
            say(flight + "\n")
        say("\n".join(look.wrap(decided.said)))
    return found.exit_status(Severity.WARNING)
