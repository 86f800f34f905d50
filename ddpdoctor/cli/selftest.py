"""``ddpdoctor selftest``: each check's patient and control, really run."""

from __future__ import annotations

import sys
import time

import click

from ddpdoctor.cli.interrupt import ending_on_signals
from ddpdoctor.cli.select import select
from ddpdoctor.model import Result, Status
from ddpdoctor.registry import load_checks


@click.command()
@click.argument("checks", nargs=-1, metavar="[CHECK|AREA]...")
@click.option("--verbose", is_flag=True, help="Also show what was found in each patient.")
def selftest(checks: tuple[str, ...], *, verbose: bool) -> None:
    """Run each check on a broken case and on its healthy twin, on this machine."""
    from ddpdoctor.probe.facts import gather
    from ddpdoctor.probe.jobs import Jobs
    from ddpdoctor.probe.selftest import try_check

    chosen = load_checks()
    if checks:
        chosen = select(chosen, ",".join(checks), "CHECK")
    started = time.monotonic()
    verdicts: list[str] = []
    with ending_on_signals():
        facts = gather()
        with Jobs(2, facts.environ) as jobs:
            for check in chosen:
                trial = try_check(check, facts, jobs)
                verdicts.append(trial.verdict)
                click.echo(f"{trial.verdict:8}{check.code}  {check.slug}")
                for name, result in (("patient", trial.patient), ("control", trial.control)):
                    if trial.verdict != "ok" or (verbose and name == "patient"):
                        click.echo(f"          {name}: {_said(result)}")
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in ("ok", "wrong", "not run"))
    click.echo(f"{counts}; {time.monotonic() - started:.1f} s")
    sys.exit(1 if "wrong" in verdicts else 0)


def _said(result: Result) -> str:
    if result.status is Status.FAILED:
        return "; ".join(finding.message for finding in result.findings)
    return f"{result.status.value}{f', because {result.reason}' if result.reason else ''}"
