"""``ddpdoctor explain``: the first cause in a log, or the page of a check."""

from __future__ import annotations

import difflib
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddpdoctor.check import BadTarget, Check
from ddpdoctor.registry import find, load_checks

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddpdoctor.explain.answer import Answer
    from ddpdoctor.explain.engine import Examination
    from ddpdoctor.explain.sources import Source


@click.command()
@click.argument("names", nargs=-1, metavar="[LOG...|CODE|SLUG]")
@click.option("-f", "--follow", is_flag=True, help="Read on while the logs grow; say so when the first cause changes.")
@click.option("--format", "form", type=click.Choice(("text", "json", "markdown")), default="text", show_default=True)
@click.option("--all", "everything", is_flag=True, help="Show fully all that was found, not only the first cause.")
@click.option("--rank", type=click.IntRange(0), help="Only what this rank said.")
def explain(names: tuple[str, ...], *, follow: bool, form: str, everything: bool, rank: int | None) -> None:
    """Find the first cause in the output of a training that failed; or print the page of a check.

    LOG is a file, compressed or not, a folder of them, or - for standard input; dumps of torch's flight recorder
    are read, too, of all ranks at once. Without a LOG, standard input is
    passed on to standard output, and explained at its end: torchrun ... 2>&1 | ddpdoctor explain
    """
    checks = load_checks()
    if len(names) == 1 and names[0] != "-" and not Path(names[0]).exists():
        _page(checks, names[0])
        return
    from ddpdoctor.explain.engine import examination

    examined = examination(checks)

    def say() -> None:
        _say(examined.answer(rank), form, everything=everything)

    if follow:
        _follow(examined, names, say, rank)
        return
    _read(examined, names, form)
    answer = examined.answer(rank)
    for fault in answer.faults:
        click.echo(f"ddpdoctor: {fault}", err=True)
    if answer.faults and not (answer.lines or answer.first):
        sys.exit(2)
    say()
    sys.exit(1 if answer.cause or answer.unknown else 0)


def _read(examined: Examination, names: tuple[str, ...], form: str) -> None:
    """Read all that is named; standard input, passed on, where nothing is."""
    from ddpdoctor.cli.logs import piped
    from ddpdoctor.explain.dumps import dump_at
    from ddpdoctor.explain.sources import blocks

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
    from ddpdoctor.explain.sources import sources

    found = []
    for name in names:
        try:
            found += sources(name)
        except BadTarget as exc:
            examined.faults.append(str(exc))
    return found


def _follow(examined: Examination, names: tuple[str, ...], say: Callable[[], None], rank: int | None) -> None:
    from ddpdoctor.cli.follow import follow

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
            say()

    follow(examined, look, speak)


def _say(answer: Answer, form: str, *, everything: bool) -> None:
    if form == "text":
        from ddpdoctor.report.answer import answer_text

        width = shutil.get_terminal_size((100, 24)).columns
        colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        click.echo(answer_text(answer, width=width, colour=colour, verbose=everything))
        return
    from ddpdoctor.report.answer_data import as_json, as_markdown

    click.echo({"json": as_json, "markdown": as_markdown}[form](answer), nl=False)


def _page(checks: tuple[Check, ...], name: str) -> None:
    from ddpdoctor.cli.list import needs

    found = find(checks, name)
    if found is None:
        names = [each for check in checks for each in (check.code, check.slug)]
        close = difflib.get_close_matches(name, names, n=3)
        hint = f"; close: {', '.join(close)}" if close else "; `ddpdoctor list` shows all"
        raise click.BadParameter(f"there is no log and no check {name!r}{hint}", param_hint="LOG|CODE|SLUG")
    facts = [found.code, found.area, str(found.severity)] + ([f"needs {needs(found)}"] if needs(found) else [])
    click.echo(f"{found.slug}  ({', '.join(facts)})\n\n{found.page}")
