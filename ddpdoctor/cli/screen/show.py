"""Shows a run: what is wrong as it is found, a status line on a terminal, notes and the verdict at the end."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddpdoctor.cli.screen.terminal import progress, say, style
from ddpdoctor.facets import BadTarget
from ddpdoctor.findings import Severity
from ddpdoctor.redact import redacted
from ddpdoctor.report.data import as_json
from ddpdoctor.report.html.page import as_page
from ddpdoctor.report.junit import as_junit
from ddpdoctor.report.style import PLAIN
from ddpdoctor.report.text import result_text
from ddpdoctor.report.verdict import closing_text, problem_text
from ddpdoctor.report.whole_file import is_stream, write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddpdoctor.findings import Report, Result


class Show:
    """Says on standard output what a run finds, notes after what is wrong.

    ``form`` is text, json, junit or html, ``output`` a file or None.
    ``quiet`` leaves out what does not change the exit status: nothing is said where that is 0.
    """

    def __init__(self, form: str, output: str | None, fail_on: Severity, *, verbose: bool, quiet: bool) -> None:
        """Refuse an output that cannot be written, before anything is run.

        Raises:
            BadTarget: the output's folder is not there or cannot be written.
        """
        self._form, self._output, self._fail_on = form, output, fail_on
        self._verbose, self._quiet = verbose, quiet
        self._style = style(sys.stdout) if output is None else PLAIN
        self._lines: list[str] = []
        self._notes: list[str] = []
        self._area = ""
        if output is not None and not is_stream(Path(output)):
            try:
                with tempfile.TemporaryFile(dir=Path(output).parent):
                    pass
            except OSError as exc:
                raise BadTarget(f"--output {output}: {exc.strerror}") from exc

    def progress(self, text: str) -> None:
        """Show what is going on, on a terminal only."""
        if not self._quiet:
            progress(text)

    def result(self, result: Result) -> None:
        """Show one result at once, where there is something to read."""
        result = redacted(self._counting(result) if self._quiet else result)
        text = result_text(result, self._style, verbose=self._verbose)
        if self._verbose and result.area != self._area:
            self._area = result.area
            self._line(self._style.heading(result.area))
        if text and not self._verbose and _is_note(result):
            self._notes.append(f"{text}\n")
        elif text:
            self._line(text if self._verbose else f"{text}\n")

    def line(self, text: str) -> None:
        """Show a line that is for programs as well."""
        self._line(text)

    def report(self, report: Report, facts: Mapping[str, Any]) -> None:
        """Show the end, or all of it where the form is one for programs."""
        report = redacted(report)
        for note in self._notes:
            self._line(note)
        if not self._quiet:
            before = "\n" if self._verbose else ""
            self._line(before + closing_text(report, self._style, verbose=self._verbose))
        elif problems := problem_text(report, self._style):
            self._line(problems)
        whole = {
            "text": lambda: "".join(f"{line}\n" for line in self._lines),
            "json": lambda: as_json(report, self._fail_on, facts),
            "junit": lambda: as_junit(report, self._fail_on),
            "html": lambda: as_page(report, facts),
        }[self._form]()
        if self._output is None and self._form == "text":
            return  # it was said as it came
        self.progress("")
        if self._output is not None:
            write_whole(Path(self._output), whole)
        else:
            say(whole.rstrip("\n"))

    def _counting(self, result: Result) -> Result:
        """Return a result without the findings that do not change the exit status."""
        findings = tuple(each for each in result.findings if (each.severity or 0) >= self._fail_on)
        return replace(result, findings=findings)

    def _line(self, text: str) -> None:
        self._lines.append(text)
        if self._form == "text" and self._output is None:
            self.progress("")
            say(text)


def _is_note(result: Result) -> bool:
    return bool(result.findings) and all(each.severity is Severity.NOTE for each in result.findings)
