"""``ddpdoctor repair``: the keys of a checkpoint renamed."""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from ddpdoctor.cli.options.required import require_torch
from ddpdoctor.cli.options.values import CHECKPOINT, TARGET, without_dash
from ddpdoctor.cli.screen.terminal import style
from ddpdoctor.facets import BadTarget

MODEL_TIME = 120.0  # seconds for the user's factory


@click.command()
@click.argument("checkpoints", metavar="CKPT...", nargs=-1, required=True)
@click.option("-o", "--output", metavar="OUT", help="Write a changed copy there; of several checkpoints, a folder.")
@click.option("--in-place", is_flag=True, help="Change the checkpoint itself; --undo takes it back.")
@click.option("--undo", is_flag=True, help="Take back the last repair in place.")
@click.option("--dry-run", is_flag=True, help="Show the old names and the new, and change nothing.")
@click.option(
    "--at",
    multiple=True,
    metavar="PLACE",
    help='The state dict that is meant, of several: netG, net.g, \'["a.b"]["c"]\', or . for the root; repeatable.',
)
@click.option(
    "--to",
    default="bare",
    show_default=True,
    metavar="WRAPPERS",
    help="Keys of the bare model, or of its wrappers from the outermost: ddp, compile, fabric, lightning; ddp,compile.",
)
@click.option("--strip", multiple=True, metavar="PREFIX", help="Take this off the front of keys.")
@click.option("--add", default="", metavar="PREFIX", help="Put this before each key.")
@click.option("--map", "mapped", multiple=True, metavar="OLD=NEW", help="Rename a key, or the beginning of keys.")
@click.option("--regex", multiple=True, metavar="PATTERN=NEW", help="Rename as re.sub does.")
@click.option("--like", type=CHECKPOINT, metavar="OTHER", help="Another checkpoint, whose keys are wanted.")
@click.option(
    "--model",
    type=TARGET,
    metavar="TARGET:NAME",
    help="A factory of the model whose keys are wanted: FILE.py:NAME.",
)
@click.option("--force", is_flag=True, help="Replace OUT when it is there.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def repair(checkpoints: tuple[str, ...], **options: Any) -> None:
    """Take the prefixes of wrappers off the keys of a checkpoint.

    Or put them on, or rename keys otherwise. No pickle is run, and no tensor is read.
    """
    chosen = [options["output"] is not None, *(options[name] for name in ("in_place", "undo", "dry_run"))]
    if sum(chosen) != 1:
        raise click.UsageError("choose one: -o OUT, --in-place, --dry-run or --undo")
    checkpoints = tuple(map(without_dash, checkpoints))
    paths, others = _all(checkpoints)
    from ddpdoctor import checkpoint
    from ddpdoctor.checkpoint.lines import shortened

    try:
        if options["undo"]:
            checkpoint.undo_all(paths)
            click.echo("\n".join(f"{path}: as before the last repair" for path in paths))
        else:
            _repair(paths, options, checkpoints)
            _tell(others)
    except BadTarget as exc:
        reasons = exc.reasons if isinstance(exc, checkpoint.SomeRefused) else (exc,)
        for reason in reasons:
            click.echo(f"ddpdoctor: {shortened(str(reason))}", err=True)
        if len(paths) > 1:
            click.echo(f"ddpdoctor: none of the {len(paths)} checkpoints was changed", err=True)
        sys.exit(1 if all(isinstance(reason, checkpoint.NoMatch) for reason in reasons) else 2)


def _repair(paths: list[str], options: dict[str, Any], named: tuple[str, ...]) -> None:
    from ddpdoctor import checkpoint
    from ddpdoctor.report.checkpoint.repair import repair_data, repair_text

    order = checkpoint.ordered(
        in_place=options["in_place"],
        at=options["at"],
        to=options["to"],
        strip=options["strip"],
        add=options["add"],
        rename=[_pair("--map", each) for each in options["mapped"]],
        regex=[_pair("--regex", each) for each in options["regex"]],
        like=options["like"],
        model=_wanted(options),
        dry_run=options["dry_run"],
        force=options["force"],
    )
    shown = style(sys.stdout)
    folder = _is_folder(options["output"], named, paths)
    of = Path(named[0]) if len(named) == 1 and named[0] != paths[0] else None
    for done in checkpoint.repair_all(paths, options["output"], order, folder=folder, of=of):
        as_json = options["form"] == "json"
        click.echo(json.dumps(repair_data(done)) if as_json else repair_text(done, shown, table=options["dry_run"]))


def _all(paths: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """List the checkpoints, of a folder of single files these; and those of its files that hold no weights."""
    from ddpdoctor.checkpoint.reader import is_one, models_in

    found: list[str] = []
    others: list[str] = []
    for path in paths:
        folder = Path(path)
        files, rest = models_in(folder) if folder.is_dir() and not is_one(folder) else ([], [])
        found += map(str, files) if files else [path]
        others += map(str, rest)
    return found, others


def _is_folder(output: str | None, named: tuple[str, ...], paths: list[str]) -> bool:
    """Whether the copy of one checkpoint is to stand in a folder under its own name: of a folder's file, or as told."""
    from ddpdoctor.checkpoint.reader import SUFFIXES

    if output is None or len(named) > 1 or Path(paths[0]).is_dir():
        return False
    return output.endswith(os.sep) or (named[0] != paths[0] and Path(output).suffix not in SUFFIXES)


def _tell(others: list[str]) -> None:
    """Say which files of a folder were left alone."""
    if others:
        names = ", ".join(Path(each).name for each in others)
        click.echo(f"ddpdoctor: left alone, as no state dict of a model is in it: {names}", err=True)


def _pair(option: str, text: str) -> tuple[str, str]:
    old, equals, new = text.rpartition("=") if option == "--regex" else text.partition("=")
    if not equals or not old:
        raise click.UsageError(f"{option} {text}: write {option} OLD=NEW")
    return old, new


def _wanted(options: dict[str, Any]) -> list[tuple[str, tuple[int, ...]]] | None:
    """Build the model in a rank of its own, and return its keys and shapes."""
    if options["model"] is None:
        return None
    if options["like"] is not None:
        raise click.UsageError("choose one: --like or --model")
    require_torch("--model")
    from time import monotonic

    from ddpdoctor.examine.model.exam import examine_model
    from ddpdoctor.jobs.pool import Jobs

    with ExitStack() as stack:
        jobs = stack.enter_context(Jobs(1, os.environ, monotonic() + MODEL_TIME))
        exam = examine_model(jobs, options["model"], None)
        return [(each.key, tuple(each.shape)) for each in exam.state]
