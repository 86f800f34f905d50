"""``ddpdoctor completion``: what a shell needs to complete commands, options, and the codes and slugs of checks."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Let your shell complete ddpdoctor's commands.

    This prints what the shell needs. In its start file, such as .bashrc:

    eval "$(ddpdoctor completion bash)"
    """
    found = get_completion_class(shell)
    assert found is not None  # noqa: S101 - click has these three
    click.echo(found(ctx.find_root().command, {}, "ddpdoctor", "_DDPDOCTOR_COMPLETE").source())
