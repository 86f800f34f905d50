"""The report that people read: plain ASCII, safe on any terminal; what is to be pasted is never wrapped."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator

import click

from ddpdoctor.model import Evidence, Finding, Report, Result, Severity, Status, Table

COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
ROWS = 8  # of a table, and evidence of a finding, that are shown without --verbose
LABEL = 10  # columns of the margin that says where, seen, fix


def printable(text: str) -> str:
    """Make text from outside harmless: control characters and what ASCII cannot say become visible escapes."""
    return "".join(
        char if " " <= char <= "~" or char == "\n" else char.encode("unicode_escape").decode() for char in text
    )


def area_text(area: str, *, colour: bool) -> str:
    """Give the heading of an area."""
    return click.style(area, bold=True) if colour else area


def result_text(result: Result, *, width: int = 100, colour: bool = False, verbose: bool = False) -> str:
    """Give the lines of one result; empty where there is nothing that a reader needs now."""
    if result.status is Status.FAILED:
        return "\n".join(
            _finding(result, finding, width, colour=colour, verbose=verbose) for finding in result.findings
        )
    if result.status is Status.CRASHED:
        return f"  crashed {result.code} {result.slug}: {printable(result.reason)}"
    if not verbose:
        return ""
    if result.status is Status.NOT_RUN:
        return f"  not run {result.code} {result.slug}, because {printable(result.reason)}"
    return f"  passed  {result.code} {result.slug} ({result.seconds:.2f} s)"


def _finding(result: Result, finding: Finding, width: int, *, colour: bool, verbose: bool) -> str:
    severity = str(finding.severity)
    if colour and finding.severity is not None:
        severity = click.style(severity, fg=COLOURS[finding.severity], bold=True)
    head = f"  {severity} {result.code} {result.slug}: {printable(finding.message)}"
    return "\n".join([head, *_body(result, finding, width, verbose=verbose)])


def _body(result: Result, finding: Finding, width: int, *, verbose: bool) -> Iterator[str]:
    if place := str(finding.place):
        yield from _labelled("where", place, width)
    most = len(finding.evidence) if verbose else ROWS
    for evidence in finding.evidence[:most]:
        yield from _evidence(evidence, width)
    if len(finding.evidence) > most:
        yield from _labelled("", f"... {len(finding.evidence) - most} more, --verbose shows them", width)
    if finding.table is not None:
        yield from _table(finding.table, verbose=verbose)
    if finding.doubt is not None:
        yield from _labelled("causes", "what remains: " + "; or ".join(finding.doubt.causes), width)
        yield from _labelled("tell", "apart with:", width)
        yield from _pasted(finding.doubt.command)
    yield from _labelled("fix", finding.fix.summary, width)
    yield from _pasted(finding.fix.command)
    yield from _pasted(finding.fix.diff)
    yield from _labelled("more", f"ddpdoctor explain {result.code}", width)


def _evidence(evidence: Evidence, width: int) -> Iterator[str]:
    source = f"  ({evidence.source})" if evidence.source else ""
    yield from _labelled("seen", f"{evidence.seen}{source}", width)
    if evidence.expected:
        yield from _labelled("expected", evidence.expected, width)


def _labelled(label: str, text: str, width: int) -> Iterator[str]:
    lines = [
        line
        for part in printable(text).splitlines()
        for line in textwrap.wrap(part, max(20, width - LABEL - 4), break_long_words=False, break_on_hyphens=False)
        or [""]
    ]
    for number, line in enumerate(lines):
        yield f"    {label if number == 0 else '':{LABEL}}{line}".rstrip()


def _pasted(text: str) -> Iterator[str]:
    for line in printable(text).splitlines():
        yield f"    {'':{LABEL}}{line}"


def _table(table: Table, *, verbose: bool) -> Iterator[str]:
    from tabulate import tabulate

    rows = table.rows if verbose else table.rows[:ROWS]
    text = tabulate(
        [[printable(str(cell)) for cell in row] for row in rows], headers=table.headers, disable_numparse=True
    )
    yield from _pasted(text)
    if len(rows) < len(table.rows):
        yield from _pasted(f"... {len(table.rows) - len(rows)} more rows, --verbose shows them")


def passed_text(area: str, results: list[Result]) -> str:
    """Say how many checks of an area passed and how many were not run."""
    counts = Counter(result.status for result in results)
    return f"{area:12}  {_counted(counts)}"


def summary_text(report: Report) -> str:
    """Give the end of the report: what could not be used, what was not run and why, and one line that sums up."""
    lines = [f"cannot use: {printable(fault)}" for fault in report.faults]
    reasons: dict[str, list[Result]] = {}
    for result in report.results:
        if result.status is Status.NOT_RUN and result.reason not in report.faults:
            reasons.setdefault(result.reason, []).append(result)
    lines += [f"not run, because {printable(reason)}: {_named(results)}" for reason, results in reasons.items()]
    levels = Counter(finding.severity for finding in report.findings())
    statuses = Counter(result.status for result in report.results)
    found = ", ".join(
        f"{levels[level]} {level}{'s' if levels[level] > 1 else ''}" for level in reversed(Severity) if levels[level]
    )
    return "\n".join([*lines, f"{found or 'nothing found'}; checks: {_counted(statuses)}; {report.seconds:.1f} s"])


def _counted(statuses: Counter[Status]) -> str:
    """Count checks by status; one that failed can have found a mere note, so it is not called that here."""
    said = {Status.FAILED: "with findings"}
    return ", ".join(f"{statuses[status]} {said.get(status, status.value)}" for status in Status if statuses[status])


def _named(results: list[Result]) -> str:
    """Name a few checks each, many by their areas."""
    if len(results) <= 3:  # noqa: PLR2004 - as many as fit in a line
        return ", ".join(result.slug for result in results)
    counts = Counter(result.area for result in results)
    return ", ".join(f"{count} of {area}" for area, count in counts.items())
