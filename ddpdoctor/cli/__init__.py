"""The command line: the only place that prints and exits. One module a command."""

from __future__ import annotations

import errno
import os
import sys

import click

from ddpdoctor.check import BadTarget
from ddpdoctor.cli.beside import beside
from ddpdoctor.cli.check import check
from ddpdoctor.cli.env import env
from ddpdoctor.cli.explain import explain
from ddpdoctor.cli.inspect import inspect
from ddpdoctor.cli.interrupt import ending_on_signals
from ddpdoctor.cli.list import list_checks
from ddpdoctor.cli.repair import repair
from ddpdoctor.cli.run import run
from ddpdoctor.cli.selftest import selftest
from ddpdoctor.registry import LoadError
from ddpdoctor.report.text import printable


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ddpdoctor")
def cli() -> None:
    """Find, prove and mend what is wrong with a PyTorch data-parallel training.

    Exit status: 0 nothing wrong, 1 findings, 2 wrong usage or unusable input, 3 the tool itself failed.
    """


for command in (check, run, list_checks, explain, inspect, repair, selftest, env, beside):
    cli.add_command(command)


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
