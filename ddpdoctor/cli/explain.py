"""``ddpdoctor explain``: the first cause in a log, or the page of a check."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from ddpdoctor.cli.explaining.pages import is_log, is_sighting, said_of
from ddpdoctor.cli.options.values import completed
from ddpdoctor.cli.screen.terminal import say, style
from ddpdoctor.facets import BadTarget
from ddpdoctor.registry import find, load_checks

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddpdoctor.logs.answer import Answer
    from ddpdoctor.logs.examination import Examination
    from ddpdoctor.logs.read.sources import Source


def _completed(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return completed(incomplete, areas=False) or [CompletionItem(incomplete, type="file")]


@click.command()
@click.argument("names", nargs=-1, metavar="[LOG...|CODE...|SLUG...|WORD...]", shell_complete=_completed)
@click.option("-f", "--follow", is_flag=True, help="Read on while the logs grow; say so when the first cause changes.")
@click.option("--format", "form", type=click.Choice(("text", "json", "markdown")), default="text", show_default=True)
@click.option("--all", "everything", is_flag=True, help="Show fully all that was found, not only the first cause.")
@click.option("--rank", type=click.IntRange(0), metavar="N", help="Only what this rank said.")
@click.option("-q", "--quiet", is_flag=True, help="Print the first cause alone; nothing where nothing failed.")
def explain(  # noqa: PLR0913 - its options
    names: tuple[str, ...], *, follow: bool, form: str, everything: bool, rank: int | None, quiet: bool
) -> None:
    """Find the cause in the log of a failed training.

    Given the codes or slugs of checks, such as DDP501, it prints their pages instead; given a word, it searches them.

    LOG is a file, compressed or not, a folder of them, or - for standard input; dumps of torch's flight recorder
    are read, too, of all ranks at once, and what ddpdoctor stuck --report has written on several hosts. Without a LOG,
    standard input is passed on to standard output, and explained at its end: torchrun ... 2>&1 | ddpdoctor explain
    """
    if any(map(is_sighting, names)):
        from ddpdoctor.cli.explaining.looks import show_reports
        from ddpdoctor.cli.explaining.reports import read

        sys.exit(show_reports(read(names), "json" if form == "json" else "text", None, verbose=everything))
    if names and not any(map(is_log, names)):
        say(said_of(load_checks(), names, style(sys.stdout), everything=everything))
        return
    others = [name for name in names if not is_log(name)]
    if both := [name for name in others if find(load_checks(), name)]:
        raise click.UsageError(f"{both[0]} is a check, and {next(filter(is_log, names))} a log: name one or the other")
    from ddpdoctor.logs.examination import quick_examination
    from ddpdoctor.logs.own_findings import is_fault

    examined = quick_examination()

    def answer_now() -> None:
        _say(examined.answer(rank), form, everything=everything, quiet=quiet)

    if follow:
        _follow(examined, names, answer_now, rank)
        return
    _read(examined, names, form)
    answer = examined.answer(rank)
    for fault in answer.faults:
        click.echo(f"ddpdoctor: {fault}", err=True)
    if answer.sources and len(examined.blank) == len(answer.sources) and not answer.faults:
        which = f"{examined.blank[0]} is" if len(examined.blank) == 1 else f"{len(examined.blank)} logs are"
        click.echo(f"ddpdoctor: nothing to read: {which} empty", err=True)
        sys.exit(2)
    if answer.faults and not (answer.lines or answer.first):
        sys.exit(2)
    answer_now()
    sys.exit(1 if answer.cause or answer.unknown or any(map(is_fault, answer.own)) else 0)


def _read(examined: Examination, names: tuple[str, ...], form: str) -> None:
    """Read all that is named; standard input, passed on, where nothing is."""
    from ddpdoctor.cli.explaining.logs import piped
    from ddpdoctor.logs.flight.dumps import dump_at
    from ddpdoctor.logs.read.sources import blocks

    if not names:
        if sys.stdin.isatty():
            raise click.UsageError("name a log, a check, or - for standard input")
        piped(examined, sys.stdout.buffer if form == "text" else sys.stderr.buffer)
        return
    if "-" in names:
        piped(examined, None)
    dumps = []
    for source in _sources(examined, [name for name in names if name != "-"]):
        try:
            dump = dump_at(source)
        except BadTarget as exc:
            examined.faults.append(str(exc))
            continue
        if dump is None:
            examined.read(source.origin, blocks(source))
        else:
            dumps.append(dump)
    examined.compare(dumps)


def _sources(examined: Examination, names: list[str]) -> list[Source]:
    from ddpdoctor.logs.read.sources import sources

    found = []
    for name in names:
        try:
            found += sources(name)
        except BadTarget as exc:
            examined.faults.append(str(exc))
    return found


def _follow(examined: Examination, names: tuple[str, ...], answer_now: Callable[[], None], rank: int | None) -> None:
    from ddpdoctor.cli.explaining.follow import follow

    if not names or "-" in names:
        raise click.UsageError("--follow needs a file or a folder")
    _sources(examined, list(names))
    if examined.faults:
        raise BadTarget(examined.faults[0])

    def look() -> list[Source]:
        found = _sources(examined, list(names))
        examined.faults.clear()  # a folder that is empty for a moment
        return found

    said: list[object] = [None]

    def speak() -> None:
        answer = examined.answer(rank)
        now = answer.cause.check.code if answer.cause else answer.unknown and answer.unknown.record.error
        if now and now != said[-1]:
            said.append(now)
            answer_now()

    follow(examined, look, speak)


def _say(answer: Answer, form: str, *, everything: bool, quiet: bool) -> None:
    if form == "text":
        from ddpdoctor.report.answer.text import answer_text, first_text

        look = style(sys.stdout)
        text = first_text(answer, look) if quiet else answer_text(answer, look, verbose=everything)
        if text:
            say(text)
        return
    from ddpdoctor.report.answer.data import as_json, as_markdown

    click.echo({"json": as_json, "markdown": as_markdown}[form](answer), nl=False)
