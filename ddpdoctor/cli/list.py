"""``ddpdoctor list``: all checks."""

from __future__ import annotations

import click
from tabulate import tabulate

from ddpdoctor.check import Check, Instrument
from ddpdoctor.cli.select import select
from ddpdoctor.registry import load_checks

OPTIONS = {
    "model": "--model",
    "loader": "--loader",
    "checkpoint": "--checkpoint",
    "gpus": "GPU",
    "jobs": "jobs",
}


@click.command("list")
@click.option("--area", default="", metavar="AREA[,...]", help="Only these areas.")
def list_checks(area: str) -> None:
    """List the checks: code, slug, severity, and what each needs."""
    checks = load_checks()
    click.echo(tabulate(rows(select(checks, area, "--area") if area else checks), headers=HEADERS))


HEADERS = ("code", "slug", "severity", "needs", "finds")


def rows(checks: tuple[Check, ...]) -> list[tuple[str, str, str, str, str]]:
    """Give a row for each check."""
    return [(check.code, check.slug, str(check.severity), needs(check), check.title) for check in checks]


def needs(check: Check) -> str:
    """Say what the check cannot see its ailment without: a target, GPUs, real jobs; or a run, or a log.

    Empty where ``ddpdoctor check`` alone shows it.
    """
    asked = [set(facet.needs) for facet in check.of(Instrument.PROBE)]
    always = set.intersection(*asked) if asked else set()
    probed = ", ".join(label for name, label in OPTIONS.items() if name in always)
    if asked and not probed:
        return ""
    others = {"run": Instrument.WATCH, "log": Instrument.SIGN}
    return " or ".join(filter(None, (probed, *(word for word, each in others.items() if check.of(each)))))
