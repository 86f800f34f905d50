"""What people read of each result: plain ASCII, safe on any terminal; what is to be pasted is never wrapped."""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.findings import Evidence, Finding, Result, Status, Table
from ddpdoctor.report.style import PLAIN, Style, table_text

ROWS = 8  # of a table, and evidence of a finding, that are shown without --verbose
MARGIN = "  "
LABEL = 10  # columns of the words that say where, seen, fix
INDENT = " " * (len(MARGIN) + LABEL)


def printable(text: str) -> str:
    """Make text from outside harmless: control characters and what ASCII cannot say become visible escapes."""
    return "".join(
        char if " " <= char <= "~" or char == "\n" else char.encode("unicode_escape").decode() for char in text
    )


def result_text(result: Result, style: Style = PLAIN, *, verbose: bool = False, by: str = "") -> str:
    """Return the lines of one result; empty where there is nothing that a reader needs now.

    ``by`` stands before each finding, where others print on the same terminal.
    """
    name = f"{result.code} {result.slug}"
    if result.status is Status.FAILED:
        findings = (_finding(result, finding, style, verbose=verbose, by=by) for finding in result.findings)
        return "\n".join(line for lines in findings for line in lines)
    if result.status is Status.CRASHED:
        text = f"{by}crashed {name}: this check itself failed: {printable(result.reason)}"
        return "\n".join(style.wrap(text, MARGIN, ""))
    if not verbose:
        return ""
    if result.status is Status.NOT_RUN:
        return "\n".join(style.wrap(f"not run {name}, because {printable(result.reason)}", MARGIN, ""))
    return f"passed  {name} ({result.seconds:.2f} s)"


def _finding(result: Result, finding: Finding, style: Style, *, verbose: bool, by: str) -> Iterator[str]:
    head = f"{by}{finding.severity} {result.code} {result.slug}: {printable(finding.message)}"
    lines = style.wrap(head, MARGIN, "")
    yield from lines if finding.severity is None else style.coloured(lines, finding.severity)
    yield from _body(result, finding, style, verbose=verbose)


def _body(result: Result, finding: Finding, style: Style, *, verbose: bool) -> Iterator[str]:
    if place := str(finding.place):
        yield from labelled("where", place, style)
    most = len(finding.evidence) if verbose else ROWS
    for evidence in finding.evidence[:most]:
        yield from _evidence(evidence, style)
    if len(finding.evidence) > most:
        yield from labelled("", f"... {len(finding.evidence) - most} more, --verbose shows them", style)
    if finding.table is not None:
        yield from _table(finding.table, style, verbose=verbose)
    if finding.ambiguity is not None:
        yield from labelled("causes", "what remains: " + "; or ".join(finding.ambiguity.causes), style)
        yield from labelled("tell", "apart with:", style)
        yield from _pasted(finding.ambiguity.command)
    yield from labelled("fix", finding.fix.summary, style)
    yield from _pasted(finding.fix.command)
    yield from _pasted(finding.fix.diff)
    yield from labelled("more", f"ddpdoctor explain {result.code}", style)


def _evidence(evidence: Evidence, style: Style) -> Iterator[str]:
    source = f"  ({evidence.source})" if evidence.source else ""
    yield from labelled("seen", f"{evidence.seen}{source}", style)
    if evidence.expected:
        yield from labelled("expected", evidence.expected, style)


def labelled(label: str, text: str, style: Style) -> Iterator[str]:
    """Yield a text below a finding's first line, with a word before it that says what it is."""
    yield from style.wrap(printable(text), INDENT, f"{MARGIN}{label:{LABEL}}")


def _pasted(text: str) -> Iterator[str]:
    for line in printable(text).splitlines():
        yield f"{INDENT}{line}"


def _table(table: Table, style: Style, *, verbose: bool) -> Iterator[str]:
    rows = table.rows if verbose else table.rows[:ROWS]
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    yield from _pasted(table_text(table.headers, cells, style.width - len(INDENT)))
    if len(rows) < len(table.rows):
        yield from _pasted(f"... {len(table.rows) - len(rows)} more rows, --verbose shows them")
