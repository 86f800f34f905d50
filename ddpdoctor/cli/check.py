"""``ddpdoctor check``: the checkup."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from ddpdoctor.cli.checkup.checking import Checkup
from ddpdoctor.cli.checkup.hosts import launch_of_several
from ddpdoctor.cli.env import as_mapping
from ddpdoctor.cli.options.configured import Configured
from ddpdoctor.cli.options.required import require_command, require_torch
from ddpdoctor.cli.options.values import CHECKPOINT, CHECKS, TARGET
from ddpdoctor.cli.screen.interrupt import ending_on_signals
from ddpdoctor.cli.screen.show import Show
from ddpdoctor.facets import Instrument
from ddpdoctor.findings import LEVELS
from ddpdoctor.registry import load_checks

if TYPE_CHECKING:
    from ddpdoctor.checkup.inputs import Named
    from ddpdoctor.facets import Check

GRACE = 2.0  # seconds after --timeout in which the last job tells where it was stuck
STARTS = 60.0  # seconds in which Ray starts a task on a node


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
    "--verbose", is_flag=True, help="Show each check, with the reason why it was not run, and long tables in full."
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
        report, facts = Checkup(chosen, named, options, launch, show, stack).run()
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


def _chosen(only: tuple[Check, ...] | None, skip: tuple[Check, ...], *, rehearsal: bool) -> tuple[Check, ...]:
    """Return the checks that look at a machine or a target; where a training is rehearsed, those that watch it, too."""
    from ddpdoctor.lint.command import looks_at_commands

    able = (Instrument.PROBE, Instrument.WATCH) if rehearsal else (Instrument.PROBE,)
    chosen = tuple(
        check
        for check in only or load_checks()
        if check not in skip and (any(map(check.of, able)) or (rehearsal and looks_at_commands(check)))
    )
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
