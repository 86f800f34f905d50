"""``ddpdoctor lint``: the mistakes that stand in the source."""

from __future__ import annotations

import dataclasses
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddpdoctor.cli.linting.told import FORMATS, Shown, complain, tell
from ddpdoctor.cli.options.settings import find_settings
from ddpdoctor.cli.options.table import Table
from ddpdoctor.cli.options.values import CHECKS
from ddpdoctor.cli.screen.terminal import progress, say
from ddpdoctor.facets import BadTarget, Check, Instrument
from ddpdoctor.findings import LEVELS, Severity
from ddpdoctor.lint import CERTAIN, LIKELY
from ddpdoctor.registry import load_linting
from ddpdoctor.report.whole_file import write_whole

if TYPE_CHECKING:
    from ddpdoctor.lint.run import Linted, Wanted

STANDARD_INPUT = "-"


@click.command(cls=Table)
@click.argument("paths", nargs=-1, metavar="[PATH...]", type=click.Path())
@click.option("--select", type=CHECKS, metavar="NAMES", help="Only these areas, codes or slugs, comma-separated.")
@click.option("--ignore", type=CHECKS, metavar="NAMES", help="Not these.")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave out files and folders in PATH. Repeatable.")
@click.option(
    "--confidence",
    type=click.Choice((CERTAIN, LIKELY)),
    default=CERTAIN,
    show_default=True,
    help="likely: also notes, and what the source alone does not prove, which never changes the exit status.",
)
@click.option(
    "--fail-on",
    type=click.Choice([str(each) for each in reversed(Severity)]),
    default="warning",
    show_default=True,
    help="The least severity that makes the exit status 1.",
)
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", show_default=True)
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the report to this file.")
@click.option("--statistics", is_flag=True, help="Show how often each check found something, and nothing else.")
@click.option("--diff", "as_diff", is_flag=True, help="Show the edits that --fix makes, as a patch.")
@click.option("--fix", "mend", is_flag=True, help="Apply the edits that findings offer, then show what remains.")
@click.option(
    "--baseline",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Leave out the findings that this file has.",
)
@click.option(
    "--write-baseline",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write what is found to this file, for --baseline, and show nothing.",
)
@click.option("--no-cache", is_flag=True, help="Look at all files anew.")
@click.option("--stdin-filename", metavar="FILE", default="stdin.py", help="The file that the text of - comes from.")
def lint(  # noqa: PLR0913 - its options
    paths: tuple[str, ...],
    *,
    select: tuple[Check, ...] | None,
    ignore: tuple[Check, ...] | None,
    exclude: tuple[str, ...],
    confidence: str,
    fail_on: str,
    form: str,
    output: Path | None,
    statistics: bool,
    as_diff: bool,
    mend: bool,
    baseline: Path | None,
    write_baseline: Path | None,
    no_cache: bool,
    stdin_filename: str,
) -> None:
    """Find mistakes of distributed training in source files.

    Nothing is run, and torch is not needed.

    PATH is a Python file, a notebook, a file that starts trainings (shell, sbatch, Dockerfile, Makefile, YAML), a
    folder, or - for standard input; without one, the current folder.

    Exit status: 0 nothing, 1 certain findings, 2 a file that cannot be read, or none to look at.
    """
    checks = load_linting() if select is None else tuple(each for each in select if each.of(Instrument.LINT))
    if not checks:
        raise click.UsageError("none of the checks that --select names reads source")
    from ddpdoctor.lint.run import Wanted, lint_text

    wanted = Wanted(checks, ignore or (), confidence)
    started = time.monotonic()
    if STANDARD_INPUT in paths:
        if len(paths) > 1 or mend or as_diff:
            raise click.UsageError("- goes with no other file, and with neither --fix nor --diff")
        linted = lint_text(stdin_filename, sys.stdin.buffer.read(), wanted)
    else:
        linted = _files(paths, exclude, wanted, mend=mend, as_diff=as_diff, cached=not no_cache)
    linted = dataclasses.replace(linted, seconds=time.monotonic() - started)
    if write_baseline is not None and not linted.left:
        from ddpdoctor.lint.baseline import as_baseline

        write_whole(write_baseline, as_baseline(linted.found, write_baseline.parent))
        complain(linted)
        status = linted.exit_status(Severity.ERROR)
        sys.exit(0 if status == 1 else status)
    if baseline is not None:
        linted = _without_known(linted, baseline)
    if not as_diff:
        tell(linted, form, LEVELS[fail_on], output, statistics=statistics)
    complain(linted)
    sys.exit(linted.exit_status(LEVELS[fail_on]))


def _without_known(linted: Linted, baseline: Path) -> Linted:
    from ddpdoctor.lint.baseline import without_known

    fresh, gone = without_known(linted.found, baseline)
    if gone:
        say(f"ddpdoctor: {gone} of the findings in {baseline} are gone: write it anew", err=True)
    return dataclasses.replace(linted, found=fresh)


def _files(  # noqa: PLR0913 - what of the options is about files
    paths: tuple[str, ...], exclude: tuple[str, ...], wanted: Wanted, *, mend: bool, as_diff: bool, cached: bool
) -> Linted:
    from ddpdoctor.lint.files import find
    from ddpdoctor.lint.mend import mended, patch
    from ddpdoctor.lint.run import lint as lint_all

    found = find(paths or (".",), exclude, find_settings(Path.cwd()).folder)
    if not found:
        but = ", but for what is excluded" if exclude else ""
        raise BadTarget(
            f"there is neither a Python file nor one that starts trainings in {', '.join(paths) or 'this folder'}{but}"
        )
    before = signal.signal(signal.SIGTERM, _break_off)  # of a time-out: what was found is told
    linted = lint_all(found, wanted, cached=cached, told=Shown())
    progress("")
    if not linted.left:
        signal.signal(signal.SIGTERM, before)
    if as_diff:
        click.echo(patch(linted.found, wanted), nl=False)
        return linted
    changed = [*mended(linted.found, wanted)] if mend and not linted.left else []
    for name, _, after in changed:
        write_whole(Path(name).resolve(), after)
    return lint_all(found, wanted) if changed else linted


def _break_off(*_: object) -> None:
    """Stop looking, once: `timeout` sends its signal to the process, and to its group."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt
