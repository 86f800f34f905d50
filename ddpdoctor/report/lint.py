"""What ``ddpdoctor lint`` found: for people, GitHub's annotations, SARIF and JSON."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from ddpdoctor.areas import by_area
from ddpdoctor.findings import Finding, Report, Result, Severity, Status
from ddpdoctor.report.data import finding_data
from ddpdoctor.report.style import PLAIN, Style
from ddpdoctor.report.text import printable, result_text

if TYPE_CHECKING:
    from ddpdoctor.facets import Check

SCHEMA = "ddpdoctor-lint/1"
SARIF = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}


class Found(Protocol):
    """A finding with its check."""

    @property
    def check(self) -> Check:
        """The check."""

    @property
    def finding(self) -> Finding:
        """What it found."""


def as_text(found: Iterable[Found], style: Style = PLAIN, *, brief: bool = False) -> str:
    """Return the findings as people read them; a line each where they want it brief."""
    if brief:
        return "\n".join(_line(each) for each in found)
    parts = [result_text(_result(each.check, (each.finding,)), style) for each in found]
    return "\n\n".join(parts)


def _line(found: Found) -> str:
    finding = found.finding
    return printable(f"{finding.place}: {finding.severity} {found.check.code} {found.check.slug}: {finding.message}")


def as_statistics(found: Iterable[Found]) -> str:
    """Return how often each check found something, the most frequent first."""
    counts = Counter(each.check for each in found)
    return "\n".join(f"{count:6}  {check.code}  {check.slug}" for check, count in counts.most_common())


def as_github(found: Iterable[Found]) -> str:
    """Return a workflow command for each finding, which GitHub shows beside its line."""
    return "\n".join(_annotation(each) for each in found)


def _annotation(found: Found) -> str:
    finding, place = found.finding, found.finding.place
    kind = {Severity.ERROR: "error", Severity.WARNING: "warning"}.get(finding.severity or Severity.NOTE, "notice")
    title = f"{found.check.code} {found.check.slug}"
    where = f"file={_property(place.file or '')},line={place.line or 1},col={place.column or 1}"
    return f"::{kind} {where},title={_property(title)}::{_escaped(f'{finding.message}. Fix: {finding.fix.summary}')}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")


def as_json(found: Iterable[Found], faults: Iterable[str], status: int) -> str:
    """Return the findings as JSON text."""
    data = {"schema": SCHEMA, "exit_status": status, "faults": [*faults], "findings": [_data(each) for each in found]}
    return json.dumps(data, indent=2) + "\n"


def _data(found: Found) -> dict[str, Any]:
    names = {"code": found.check.code, "slug": found.check.slug, "area": found.check.area}
    edits = [
        {"line": e.line, "column": e.column, "end_line": e.end_line, "end_column": e.end_column, "text": e.text}
        for e in found.finding.fix.edits
    ]
    return {**names, **finding_data(found.finding), "edits": edits}


def as_sarif(found: Iterable[Found], faults: Iterable[str], version: str) -> str:
    """Return the findings as SARIF 2.1.0, which code hosts and editors read."""
    listed = list(found)
    checks = sorted({each.check for each in listed}, key=lambda check: by_area(check.code))
    driver = {
        "name": "ddpdoctor",
        "version": version,
        "rules": [
            {
                "id": check.code,
                "name": check.slug,
                "shortDescription": {"text": check.title},
                "help": {"text": check.page},
                "defaultConfiguration": {"level": LEVELS[check.severity]},
            }
            for check in checks
        ],
    }
    notes = [{"level": "error", "message": {"text": fault}} for fault in faults]
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": not notes, "toolExecutionNotifications": notes}],
        "results": [_sarif_result(each, checks) for each in listed],
    }
    return json.dumps({"$schema": SARIF, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _sarif_result(found: Found, checks: list[Check]) -> dict[str, Any]:
    finding, place = found.finding, found.finding.place
    region = {"startLine": place.line or 1, "startColumn": place.column or 1}
    location = {"artifactLocation": {"uri": (place.file or "").replace(os.sep, "/")}, "region": region}
    return {
        "ruleId": found.check.code,
        "ruleIndex": checks.index(found.check),
        "level": LEVELS[finding.severity or Severity.NOTE],
        "message": {"text": f"{finding.message}. Fix: {finding.fix.summary}"},
        "locations": [{"physicalLocation": location}],
    }


def as_report(found: Iterable[Found], faults: Iterable[str], seconds: float) -> Report:
    """Return a report as ``check`` has one, for what reads those."""
    by_check: dict[Check, list[Finding]] = {}
    for each in found:
        by_check.setdefault(each.check, []).append(each.finding)
    ordered = sorted(by_check.items(), key=lambda item: by_area(item[0].code))
    results = tuple(_result(check, tuple(findings)) for check, findings in ordered)
    return Report(results, tuple(faults), seconds)


def _result(check: Check, findings: tuple[Finding, ...]) -> Result:
    return Result(check.code, check.slug, check.area, check.title, Status.FAILED, findings)


def summary(files: int, parsed: int, found: Iterable[Found], seconds: float, withheld: int = 0) -> Iterator[str]:
    """Yield the last line: what was looked at, how much was found, and how much more there is to be told."""
    counts = Counter(each.finding.severity for each in found)
    said = ", ".join(
        f"{counts[level]} {level}{'s' * (counts[level] > 1)}" for level in reversed(Severity) if counts[level]
    )
    yield (
        f"{said or 'nothing found'}: {files} file{'s' * (files != 1)}, {parsed} of them about distributed training"
        f" ({seconds:.1f} s)" + (f"; {withheld} more: --confidence likely" if withheld else "")
    )
