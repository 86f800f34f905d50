"""``ddpdoctor explain``: the page of a check."""

from __future__ import annotations

import difflib

import click

from ddpdoctor.cli.list import needs
from ddpdoctor.registry import find, load_checks


@click.command()
@click.argument("check", metavar="CODE|SLUG")
def explain(check: str) -> None:
    """Print the page of a check: what happens, why, how to be sure, how to mend it."""
    checks = load_checks()
    found = find(checks, check)
    if found is None:
        names = [name for each in checks for name in (each.code, each.slug)]
        close = difflib.get_close_matches(check, names, n=3)
        hint = f"; close: {', '.join(close)}" if close else "; `ddpdoctor list` shows all"
        raise click.BadParameter(f"there is no check {check!r}{hint}", param_hint="CODE|SLUG")
    facts = [found.code, found.area, str(found.severity)] + ([f"needs {needs(found)}"] if needs(found) else [])
    click.echo(f"{found.slug}  ({', '.join(facts)})\n\n{found.page}")
