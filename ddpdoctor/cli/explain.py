"""``ddpdoctor explain``: the first cause in a log, or the page of a check."""

from __future__ import annotations

import difflib
import os
import shutil
import sys
from pathlib import Path

import click

from ddpdoctor.check import BadTarget, Check
from ddpdoctor.cli.list import needs
from ddpdoctor.registry import find, load_checks


@click.command()
@click.argument("names", nargs=-1, metavar="LOG...|CODE|SLUG")
@click.option("--all", "everything", is_flag=True, help="Show all that was found, not only the first cause.")
def explain(names: tuple[str, ...], *, everything: bool) -> None:
    """Find the first cause in the output of a training that failed; or print the page of a check."""
    checks = load_checks()
    if len(names) == 1 and not Path(names[0]).exists():
        _page(checks, names[0])
        return
    from ddpdoctor.explain.engine import examination
    from ddpdoctor.explain.sources import blocks, sources
    from ddpdoctor.report.answer import answer_text

    examined = examination(checks)
    for name in names:
        try:
            for source in sources(name):
                examined.read(source.origin, blocks(source))
        except BadTarget as exc:
            examined.faults.append(str(exc))
    answer = examined.answer()
    for fault in answer.faults:
        click.echo(f"ddpdoctor: {fault}", err=True)
    width = shutil.get_terminal_size((100, 24)).columns
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    click.echo(answer_text(answer, width=width, colour=colour, verbose=everything))
    sys.exit(1 if answer.cause or answer.unknown else 0)


def _page(checks: tuple[Check, ...], name: str) -> None:
    found = find(checks, name)
    if found is None:
        names = [each for check in checks for each in (check.code, check.slug)]
        close = difflib.get_close_matches(name, names, n=3)
        hint = f"; close: {', '.join(close)}" if close else "; `ddpdoctor list` shows all"
        raise click.BadParameter(f"there is no log and no check {name!r}{hint}", param_hint="LOG|CODE|SLUG")
    facts = [found.code, found.area, str(found.severity)] + ([f"needs {needs(found)}"] if needs(found) else [])
    click.echo(f"{found.slug}  ({', '.join(facts)})\n\n{found.page}")
