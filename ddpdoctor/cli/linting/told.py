"""What was found in source files, in the form that the user asked for, and how far the look has come."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.cli.screen.terminal import progress, say, style
from ddpdoctor.report.whole_file import write_whole

if TYPE_CHECKING:
    from ddpdoctor.findings import Severity
    from ddpdoctor.lint.run import Linted

FORMATS = ("text", "brief", "github", "sarif", "json", "junit")
LATE, OFTEN = 1.0, 0.1  # seconds


@dataclasses.dataclass
class Shown:
    """Shows how far it is, where it takes longer than a second."""

    next: float = dataclasses.field(default_factory=lambda: time.monotonic() + LATE)

    def __call__(self, done: int, whole: int) -> None:
        """Show it, now and then."""
        if (now := time.monotonic()) >= self.next:
            self.next = now + OFTEN
            progress(f"{done:,} of {whole:,} files")


def complain(linted: Linted) -> None:
    """Print what kept it from looking, on standard error."""
    if linted.left:
        say(
            f"ddpdoctor: broken off: {linted.left:,} of {linted.files + linted.left:,} files were not looked at",
            err=True,
        )
    for text in (*linted.faults, *linted.useless, *linted.crashes):
        say(f"ddpdoctor: {text}", err=True)


def tell(linted: Linted, form: str, fail_on: Severity, output: Path | None, *, statistics: bool) -> None:
    """Print what was found, or write it to a file."""
    text = _report(linted, form, fail_on, to_file=output is not None, statistics=statistics)
    if output is not None:
        write_whole(output, text if text.endswith("\n") or not text else f"{text}\n")
    elif text:
        say(text.rstrip("\n"))


def _report(linted: Linted, form: str, fail_on: Severity, *, to_file: bool, statistics: bool) -> str:
    from ddpdoctor.report import lint as report
    from ddpdoctor.report.style import PLAIN

    if statistics:
        return report.as_statistics(linted.found)
    match form:
        case "github":
            return report.as_github(linted.found)
        case "json":
            return report.as_json(linted.found, linted.faults, linted.exit_status(fail_on))
        case "sarif":
            return report.as_sarif(linted.found, linted.faults, importlib.metadata.version("ddpdoctor"))
        case "junit":
            from ddpdoctor.report.junit import as_junit

            return as_junit(report.as_report(linted.found, linted.faults, linted.seconds), fail_on)
    text = report.as_text(linted.found, PLAIN if to_file else style(sys.stdout), brief=form == "brief")
    last = "\n".join(report.summary(linted.files, linted.parsed, linted.found, linted.seconds, linted.withheld))
    between = "\n" if form == "brief" else "\n\n"
    return between.join(filter(None, (text, last)))
