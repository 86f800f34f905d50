"""The command line: the only place that prints and exits. One module a command."""

from __future__ import annotations

import errno
import importlib
import os
import sys

import click

from ddpdoctor.check import BadTarget
from ddpdoctor.cli.interrupt import ending_on_signals
from ddpdoctor.registry import LoadError
from ddpdoctor.report.text import printable

COMMANDS = {
    "beside": "beside",
    "check": "check",
    "env": "env",
    "explain": "explain",
    "inspect": "inspect",
    "list": "list_checks",
    "repair": "repair",
    "run": "run",
    "selftest": "selftest",
}


class Commands(click.Group):
    """Imports a command when it is asked for: to explain a log takes nothing of a checkup."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        """Name all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        """Give a command; None where there is none of this name."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"ddpdoctor.cli.{cmd_name}")
        command: click.Command = getattr(module, COMMANDS[cmd_name])
        return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ddpdoctor")
def cli() -> None:
    """Find, prove and mend what is wrong with a PyTorch data-parallel training.

    Exit status: 0 nothing wrong, 1 findings, 2 wrong usage or unusable input, 3 the tool itself failed.
    """


def main() -> None:
    """Run the command line."""
    try:
        with ending_on_signals():
            cli()
    except BadTarget as exc:
        click.echo(f"ddpdoctor: {printable(str(exc))}", err=True)
        sys.exit(2)
    except LoadError as exc:
        click.echo(f"ddpdoctor: {exc}", err=True)
        sys.exit(3)
    except OSError as exc:
        if exc.errno != errno.EPIPE:  # no temporary directory, no more processes, a full disk
            click.echo(f"ddpdoctor: {exc}", err=True)
            sys.exit(3)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader has gone: no complaint at the interpreter's end
        sys.exit(1)
