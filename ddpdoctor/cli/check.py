"""``ddpdoctor check``: the checkup."""

from __future__ import annotations

import functools
import os
import sys
import time
from contextlib import ExitStack
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from ddpdoctor.check import Instrument
from ddpdoctor.cli.env import as_mapping
from ddpdoctor.cli.interrupt import ending_on_signals
from ddpdoctor.cli.rehearse import rehearse
from ddpdoctor.cli.run import as_result
from ddpdoctor.cli.select import select
from ddpdoctor.cli.show import Show
from ddpdoctor.model import Report, Severity, Status
from ddpdoctor.probe.checkup import OUT_OF_TIME, examine, not_run
from ddpdoctor.registry import load_checks

if TYPE_CHECKING:
    from ddpdoctor.check import Check
    from ddpdoctor.probe.facts import Facts
    from ddpdoctor.probe.supplies import Named
    from ddpdoctor.watch.judge import Found

GRACE = 2.0  # seconds after --timeout in which the last job tells where it was stuck
LEVELS = {str(severity): severity for severity in Severity}


@click.command()
@click.option("--model", metavar="TARGET:NAME", help="A factory of the model: FILE.py:NAME or MODULE:NAME.")
@click.option("--batch", metavar="TARGET:NAME", help="A factory of one rank's example batch for the model.")
@click.option("--loader", metavar="TARGET:NAME", help="A factory of a rank's data loader.")
@click.option("--checkpoint", metavar="FILE", help="A checkpoint; best with --model. Its pickle is not run.")
@click.option("--nproc", type=click.IntRange(1, 64), metavar="N", help="Ranks of a job, and the planned ranks here.")
@click.option("--backend", type=click.Choice(["auto", "gloo", "nccl"]), default="auto", show_default=True)
@click.option("--only", default="", metavar="NAMES", help="Only these areas, codes or slugs (comma-separated).")
@click.option("--skip", default="", metavar="NAMES", help="Not these areas, codes or slugs.")
@click.option(
    "--fail-on",
    type=click.Choice(list(LEVELS)),
    default="warning",
    show_default=True,
    help="The least severity that makes the exit status 1.",
)
@click.option("--format", "form", type=click.Choice(["text", "json", "junit"]), default="text", show_default=True)
@click.option("--output", type=click.Path(dir_okay=False), metavar="FILE", help="Write the report there.")
@click.option("--verbose", is_flag=True, help="Show each check that passed, and all of long tables.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=120,
    show_default=True,
    help="Seconds for the whole run.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def check(**options: Any) -> None:
    """Check this machine, and the model, loader and checkpoint that you name, by small real jobs.

    With -- COMMAND (torchrun ..., accelerate launch ...) the training itself is rehearsed: a few short epochs of it
    with the watch on.
    """
    chosen = _chosen(options["only"], options["skip"], rehearsal=bool(options["command"]))
    named = _named(options)
    fail_on = LEVELS[options["fail_on"]]
    with ending_on_signals(options["timeout"] + GRACE), ExitStack() as stack:
        show = Show(options["form"], options["output"], fail_on, verbose=options["verbose"])
        report, facts = _examine(chosen, named, options, show, stack)
        show.report(report, as_mapping(facts))
    sys.exit(report.exit_status(fail_on))


def _examine(
    chosen: tuple[Check, ...], named: Named, options: dict[str, Any], show: Show, stack: ExitStack
) -> tuple[Report, Facts]:
    from ddpdoctor.probe.facts import gather
    from ddpdoctor.probe.jobs import Jobs
    from ddpdoctor.probe.supplies import supplies

    started = time.monotonic()
    ends_at = started + options["timeout"]

    @functools.cache
    def jobs() -> Jobs:
        return stack.enter_context(Jobs(options["nproc"] or 2, os.environ, ends_at))

    if _has_jobs(chosen):
        jobs()  # at once: it imports torch in the background while the rest goes on
    facts = gather(ranks=options["nproc"])
    supply = supplies(facts, jobs, named, options["backend"])
    results = []
    probes = [check for check in chosen if check.of(Instrument.PROBE)]
    for number, each in enumerate(probes):
        show.progress(f"[{number + 1}/{len(probes)}] {each.code} {each.slug}")
        results.append(examine(each, supply) if time.monotonic() < ends_at else not_run(each, OUT_OF_TIME))
        show.result(results[-1])
    faults = supply.faults()
    if options["command"]:
        show.progress(f"rehearsal of {' '.join(options['command'])}")
        limit = max(1.0, ends_at - time.monotonic())
        rehearsed = rehearse(options["command"], chosen, limit, no_gpu=not facts.gpus.devices)
        faults += (rehearsed.fault,) if rehearsed.fault else ()
        if rehearsed.note:
            click.echo(rehearsed.note, err=True)
        for code, found in groupby(sorted(rehearsed.found, key=by_code), by_code):
            results = [each for each in results if each.code != code or each.status is not Status.NOT_RUN]
            results.append(as_result(*found))
            show.result(results[-1])
    return Report(tuple(results), faults, time.monotonic() - started), facts


def by_code(found: Found) -> str:
    """Give the code of the check that a finding is of."""
    return found.check.code


def _has_jobs(chosen: tuple[Check, ...]) -> bool:
    return any({"jobs", "model", "loader"} & set(facet.needs) for check in chosen for facet in check.facets)


def _chosen(only: str, skip: str, *, rehearsal: bool) -> tuple[Check, ...]:
    """Give the checks that look at a machine or a target; where a training is rehearsed, those that watch it, too."""
    checks = load_checks()
    chosen = select(checks, only, "--only") if only else checks
    left_out = select(checks, skip, "--skip")
    able = (Instrument.PROBE, Instrument.WATCH) if rehearsal else (Instrument.PROBE,)
    chosen = tuple(check for check in chosen if check not in left_out and any(map(check.of, able)))
    if not chosen:
        raise click.UsageError("--only and --skip leave no check that examines a machine or a target")
    return chosen


def _named(options: dict[str, Any]) -> Named:
    from ddpdoctor.probe.supplies import Named
    from ddpdoctor.probe.target import parse

    if options["batch"] and not options["model"]:
        raise click.UsageError("--batch needs --model")
    targets = {option: parse(options[option]) if options[option] else None for option in ("model", "batch", "loader")}
    return Named(**targets, checkpoint=options["checkpoint"])
