"""Shows a run: each result as it comes, a status line on a terminal, the report at the end."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from ddpdoctor.check import BadTarget
from ddpdoctor.model import Report, Result, Severity, Status
from ddpdoctor.report.data import as_json
from ddpdoctor.report.junit import as_junit
from ddpdoctor.report.redact import redacted
from ddpdoctor.report.text import area_text, passed_text, result_text, summary_text

CLEAR = "\r\x1b[K"


class Show:
    """Says on standard output what a run finds; ``form`` is text, json or junit, ``output`` a file or None."""

    def __init__(self, form: str, output: str | None, fail_on: Severity, *, verbose: bool) -> None:
        """Refuse an output that cannot be written, before anything is run.

        Raises:
            BadTarget: the output's folder is not there or cannot be written.
        """
        self._form, self._output, self._fail_on, self._verbose = form, output, fail_on, verbose
        self._colour = output is None and sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self._lines: list[str] = []
        self._shown: list[Result] = []
        if output is not None and not _is_stream(Path(output)):
            try:
                with tempfile.TemporaryFile(dir=Path(output).parent):
                    pass
            except OSError as exc:
                raise BadTarget(f"--output {output}: {exc.strerror}") from exc

    def progress(self, text: str) -> None:
        """Show what is going on, on a terminal only."""
        if sys.stderr.isatty():
            click.echo(CLEAR + text[: shutil.get_terminal_size().columns - 1], err=True, nl=False)

    def result(self, result: Result) -> None:
        """Show one result: when its area is done, or at once where there is something to read."""
        result = redacted(result)
        if self._shown and self._shown[-1].area != result.area:
            self._end_area()
        self._shown.append(result)
        width = shutil.get_terminal_size((100, 24)).columns
        if text := result_text(result, width=width, colour=self._colour, verbose=self._verbose):
            if not any(self._has_text(other) for other in self._shown[:-1]):
                self._line(area_text(result.area, colour=self._colour))
            self._line(text)

    def report(self, report: Report, facts: Mapping[str, Any]) -> None:
        """Show the end, or all of it where the form is one for programs."""
        report = redacted(report)
        if self._shown:
            self._end_area()
        self.progress("")
        self._line("")
        self._line(summary_text(report))
        whole = {
            "text": lambda: "\n".join(self._lines) + "\n",
            "json": lambda: as_json(report, self._fail_on, facts),
            "junit": lambda: as_junit(report, self._fail_on),
        }[self._form]()
        if self._output is not None:
            write_whole(Path(self._output), whole)
        elif self._form != "text":
            click.echo(whole, nl=False)

    def _has_text(self, result: Result) -> bool:
        return self._verbose or result.status in (Status.FAILED, Status.CRASHED)

    def _end_area(self) -> None:
        if not self._verbose:
            self._line(passed_text(self._shown[-1].area, self._shown))
        self._shown.clear()

    def _line(self, text: str) -> None:
        self._lines.append(text)
        if self._form == "text" and self._output is None:
            self.progress("")
            click.echo(text)


def write_whole(path: Path, text: str) -> None:
    """Write the file so that a reader sees all of it or nothing; a pipe or a device, as it comes."""
    if _is_stream(path):
        path.write_text(text, encoding="utf-8")
        return
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        whole = Path(folder) / path.name
        whole.write_text(text, encoding="utf-8")
        whole.replace(path)


def _is_stream(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()
