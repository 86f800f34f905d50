"""``ddpdoctor inspect``: what a checkpoint holds."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from ddpdoctor.cli.options.values import CHECKPOINT
from ddpdoctor.cli.screen.terminal import say, style
from ddpdoctor.facets import BadTarget

if TYPE_CHECKING:
    from ddpdoctor.checkpoint import CheckpointFile


@click.command()
@click.argument("checkpoint", type=CHECKPOINT, metavar="CKPT")
@click.option(
    "--like",
    type=CHECKPOINT,
    metavar="OTHER",
    help="Another checkpoint: compare key by key; exit status 1 when they differ.",
)
@click.option("--keys", is_flag=True, help="List each key, with shape and dtype.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def inspect(checkpoint: str, like: str | None, form: str, *, keys: bool) -> None:
    """Show what a checkpoint holds.

    Its format, state dicts, the prefixes that wrappers left on keys, and what its pickle imports; it is not run. Exit
    status 2 when it is damaged, no checkpoint, or not understood.
    """
    from ddpdoctor.checkpoint import inspect as look
    from ddpdoctor.checkpoint.partly import with_paths
    from ddpdoctor.checkpoint.reader import paused_collector

    with paused_collector():
        file = look(checkpoint)
        if like is None:
            _tell(with_paths(file), form, keys=keys)
        else:
            _compare(file, look(like), form, keys=keys)


def _tell(file: CheckpointFile, form: str, *, keys: bool) -> None:
    from ddpdoctor.report.checkpoint.data import inspect_data
    from ddpdoctor.report.checkpoint.text import inspect_text

    if form == "json":
        click.echo(json.dumps(inspect_data(file, keys=keys), indent=2))
    else:
        say(inspect_text(file, style(sys.stdout), keys=keys))
    sys.exit(2 if file.damage or file.opaque or not file.format.loads else 0)


def _compare(file: CheckpointFile, other: CheckpointFile, form: str, *, keys: bool) -> None:
    from ddpdoctor.checkpoint.pairing import pairings
    from ddpdoctor.report.checkpoint.text import pairing_text

    for each in (file, other):
        if not each.state_dicts:
            raise BadTarget(f"{each.path} has no state dict: {each.damage or each.opaque or each.format.value}")
    found = pairings(file, other)
    if form == "json":
        rows = [
            {"location": list(each.location), "other": list(each.other), "keys": [list(row) for row in each.rows]}
            for each in found
        ]
        click.echo(json.dumps(rows, indent=2))
    else:
        click.echo("\n".join(pairing_text(each, keys=keys) for each in found))
    sys.exit(0 if all(each.equal for each in found) else 1)
