"""``ddpdoctor check``: the checkup."""

from __future__ import annotations

import functools
import os
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from ddpdoctor.checkup.examine import examine, merged, out_of_time
from ddpdoctor.cli.env import as_mapping
from ddpdoctor.cli.hosts import as_its_ranks, launch_of_several
from ddpdoctor.cli.interrupt import ending_on_signals, without_deadline
from ddpdoctor.cli.options.configured import Configured
from ddpdoctor.cli.options.required import require_command, require_torch
from ddpdoctor.cli.options.values import CHECKPOINT, CHECKS, TARGET
from ddpdoctor.cli.show import Show
from ddpdoctor.facets import Instrument
from ddpdoctor.findings import Report, Result, Severity
from ddpdoctor.registry import load_checks

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddpdoctor.checkup.examine import Inputs
    from ddpdoctor.checkup.inputs import Named
    from ddpdoctor.cli.hosts import Session
    from ddpdoctor.cluster.launch import Launch
    from ddpdoctor.facets import Check
    from ddpdoctor.host.facts import Facts
    from ddpdoctor.jobs.pool import Jobs

GRACE = 2.0  # seconds after --timeout in which the last job tells where it was stuck
STARTS = 60.0  # seconds in which Ray starts a task on a node
LEVELS = {str(severity): severity for severity in Severity}


@click.command(cls=Configured)
@click.option(
    "--model",
    type=TARGET,
    metavar="TARGET:NAME",
    help="A function that builds your model: FILE.py:NAME or MODULE:NAME.",
)
@click.option("--batch", type=TARGET, metavar="TARGET:NAME", help="A function that makes an example batch of one rank.")
@click.option("--loader", type=TARGET, metavar="TARGET:NAME", help="A function that builds the data loader of a rank.")
@click.option(
    "--checkpoint",
    type=CHECKPOINT,
    metavar="FILE",
    help="A checkpoint; best with --model. Its pickle is not run.",
)
@click.option(
    "--nproc",
    type=click.IntRange(1, 64),
    metavar="N",
    help="Ranks of each job: as many as are to train here.  [default: 2]",
)
@click.option(
    "--backend",
    type=click.Choice(["auto", "gloo", "nccl"]),
    default="auto",
    show_default=True,
    help="The backend that is tested; auto: all that can work here.",
)
@click.option("--only", type=CHECKS, metavar="NAMES", help="Only these areas, codes or slugs, separated by commas.")
@click.option("--skip", type=CHECKS, metavar="NAMES", help="Not these areas, codes or slugs.")
@click.option(
    "--fail-on",
    type=click.Choice(list(LEVELS)),
    default="warning",
    show_default=True,
    help="The least severity that makes the exit status 1.",
)
@click.option(
    "--format", "form", type=click.Choice(["text", "json", "junit", "html"]), default="text", show_default=True
)
@click.option("--output", type=click.Path(dir_okay=False), metavar="FILE", help="Write the report there.")
@click.option(
    "--verbose", is_flag=True, help="Show each check, with the reason why it was not run; all of long tables."
)
@click.option("-q", "--quiet", is_flag=True, help="Show only what makes the exit status another than 0.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=120,
    show_default=True,
    metavar="SECONDS",
    help="Limit of the whole run, a rehearsal included.",
)
@click.option(
    "--expect",
    type=click.IntRange(2, 100_000),
    metavar="N",
    help="Hosts that take part.  [default: as many as the launcher says]",
)
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=60,
    show_default=True,
    metavar="SECONDS",
    help="How long the hosts wait for each other.",
)
@click.option("--ray", is_flag=True, help="Run the check on each node of the Ray cluster that this host belongs to.")
@click.option(
    "--data",
    type=str,
    metavar="FOLDER",
    help="The training's data; several hosts compare the names and sizes of its files.",
)
@click.option(
    "--save-folder",
    type=str,
    metavar="FOLDER",
    help="Where the training saves; several hosts try whether each can write there, and whether they share it.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def check(**options: Any) -> None:
    """Check this machine, your model, loader and checkpoint.

    Small real jobs of DistributedDataParallel run here, with the model, the loader and the checkpoint that you name.
    With -- COMMAND (torchrun ..., accelerate launch ...) the training itself is rehearsed: a few short epochs of it
    with the watch on.
    """
    chosen = _chosen(options["only"], options["skip"] or (), rehearsal=bool(options["command"]))
    named = _named(options)
    if options["verbose"] and options["quiet"]:
        raise click.UsageError("choose one: --verbose or --quiet")
    if options["ray"]:
        sys.exit(_on_ray(options["timeout"] + options["wait"]))
    fail_on = LEVELS[options["fail_on"]]
    launch = launch_of_several(options["expect"], options["command"])
    if launch is not None and launch.local_rank:
        click.echo(f"ddpdoctor: local rank {launch.local_rank}: local rank 0 looks at this host", err=True)
        return
    with ending_on_signals(options["timeout"] + GRACE), ExitStack() as stack:
        show = Show(options["form"], options["output"], fail_on, verbose=options["verbose"], quiet=options["quiet"])
        report, facts = _examine(chosen, named, options, show, stack, launch)
        if report is None:
            return
        show.report(report, as_mapping(facts))
    sys.exit(report.exit_status(fail_on))


def _on_ray(seconds: float) -> int:
    """Run the same command on each node, and show what they say: the first one reports."""
    from ddpdoctor.cluster.on_ray import check_on_nodes

    words = sys.argv[sys.argv.index("check") + 1 :]
    own = words[: words.index("--")] if "--" in words else words
    args = [each for each in own if each != "--ray"] + words[len(own) :]
    done = check_on_nodes(args, seconds + GRACE + STARTS)
    for address, (_, out, err) in done:
        click.echo("".join(f"{address}: {line}\n" for line in err.splitlines()), err=True, nl=False)
        click.echo(out, nl=False)
    return max(status for _, (status, _, _) in done)


def _examine(  # noqa: PLR0913, PLR0917 - as below
    chosen: tuple[Check, ...],
    named: Named,
    options: dict[str, Any],
    show: Show,
    stack: ExitStack,
    launch: Launch | None,
) -> tuple[Report | None, Facts]:
    from ddpdoctor.checkup.inputs import supplies
    from ddpdoctor.host.facts import gather
    from ddpdoctor.jobs.pool import Jobs

    started = time.monotonic()
    ends_at = started + options["timeout"]

    @functools.cache
    def jobs() -> Jobs:
        return stack.enter_context(Jobs(options["nproc"] or 2, os.environ, ends_at))

    if _has_jobs(chosen):
        jobs()  # at once: it imports torch in the background while the rest goes on
    facts = gather(ranks=options["nproc"])
    session = _session(launch, chosen, options, facts, jobs, stack)
    told = as_its_ranks(facts, launch, options["command"])

    def supplied() -> Inputs:
        return supplies(told, jobs, named, options["backend"], None if session is None else session.seen)

    results, faults = _probed(chosen, supplied, session, show, ends_at)
    rehearsed = None
    if options["command"] and not (session is None or session.let_train(results, ends_at)):
        show.line("Your command is not rehearsed: first mend what keeps the hosts apart.")
    elif options["command"]:
        from ddpdoctor.watch.rehearse import rehearse

        without_deadline()
        done = rehearse(options["command"], chosen, ends_at, show.progress, no_gpu=not facts.gpus.devices)
        faults, rehearsed = (*faults, *filter(None, [done.fault])), done.rehearsed
        for result in done.results:
            show.result(result)
        results += done.results
    report = Report(merged(results), faults, time.monotonic() - started, rehearsed)
    return (report if session is None else session.end(report, show, ends_at)), facts


def _probed(
    chosen: tuple[Check, ...], supplied: Callable[[], Inputs], session: Session | None, show: Show, ends_at: float
) -> tuple[list[Result], tuple[str, ...]]:
    """Ask the checks, and show what each says; what several hosts find without torch is said before any imports it.

    The second are the targets that could not be examined.
    """
    probes = [check for check in chosen if check.of(Instrument.PROBE)]
    probes.sort(key=lambda check: not any("cluster" in facet.needs for facet in check.facets))  # their faults first

    def one(check: Check, supply: Inputs) -> Result:
        show.progress(f"[{probes.index(check) + 1}/{len(probes)}] {check.code} {check.slug}")
        return examine(check, supply) if time.monotonic() < ends_at else out_of_time(check)

    first = supplied()
    known = {each: one(each, first) for each in probes if not _has_jobs((each,))}  # they do not wait for torch's import
    if session is not None:
        known = dict(zip(known, session.with_others(tuple(known.values())), strict=True))
        for result in known.values() if session.speaks else ():
            show.result(result)
        session.run_jobs()
        probes.sort(key=lambda check: check not in known)
    then = supplied() if session is not None else first
    results = []
    for each in probes:
        results.append(known.get(each) or one(each, then))
        if session is None or (session.speaks and each not in known):
            show.result(results[-1])
    return results, tuple(dict.fromkeys((*first.faults(), *then.faults())))


def _session(  # noqa: PLR0913, PLR0917 - what a run has at hand
    launch: Launch | None,
    chosen: tuple[Check, ...],
    options: dict[str, Any],
    facts: Facts,
    jobs: Callable[[], Jobs],
    stack: ExitStack,
) -> Session | None:
    """Meet the other hosts, where there are some and a check that asks for them."""
    asking = [check for check in chosen if any("cluster" in facet.needs for facet in check.facets)]
    if launch is None or not asking:
        return None
    from ddpdoctor.cli.hosts import Opening, open_session

    named = [*options["command"], *(str(options[each] or "").partition(":")[0] for each in ("model", "loader"))]
    opening = Opening(
        launch,
        tuple(named),
        options["wait"],
        jobs,
        _has_jobs(tuple(asking)),
        (options["model"], options["batch"]) if options["model"] and options["batch"] else None,
        options["data"] or "",
        options["save_folder"] or "",
    )
    return open_session(opening, facts, stack)


def _has_jobs(chosen: tuple[Check, ...]) -> bool:
    return any({"jobs", "model", "loader"} & set(facet.needs) for check in chosen for facet in check.facets)


def _chosen(only: tuple[Check, ...] | None, skip: tuple[Check, ...], *, rehearsal: bool) -> tuple[Check, ...]:
    """Return the checks that look at a machine or a target; where a training is rehearsed, those that watch it, too."""
    able = (Instrument.PROBE, Instrument.WATCH) if rehearsal else (Instrument.PROBE,)
    chosen = tuple(check for check in only or load_checks() if check not in skip and any(map(check.of, able)))
    if not chosen:
        raise click.UsageError("--only and --skip leave no check that examines a machine or a target")
    return chosen


def _named(options: dict[str, Any]) -> Named:
    """Return the targets; refuse those that nothing can be done with.

    Raises:
        BadTarget: torch, which they need, is not installed; or the command that is to be rehearsed is not there.
    """
    from ddpdoctor.checkup.inputs import Named

    if options["batch"] and not options["model"]:
        raise click.UsageError("--batch needs --model")
    for option in ("model", "loader"):
        if options[option]:
            require_torch(f"--{option}")
    if options["command"]:
        require_command(options["command"], "check")
    return Named(**{name: options[name] for name in ("model", "batch", "loader", "checkpoint")})
