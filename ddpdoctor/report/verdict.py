"""The end of a report: the verdict in one line, how much was looked at, and what would show more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ddpdoctor.findings import Finding, Report, Severity, Status
from ddpdoctor.report.hosts import hosts_text
from ddpdoctor.report.style import PLAIN, Style
from ddpdoctor.report.text import MARGIN, printable

OFFERS = {
    "model": ("--model FILE.py:NAME", "a function that builds your model"),
    "batch": ("--batch FILE.py:NAME", "a function that makes an example batch"),
    "loader": ("--loader FILE.py:NAME", "a function that builds your data loader"),
    "checkpoint": ("--checkpoint FILE", "a checkpoint of yours"),
    "gpus": ("a GPU", "none was found here"),
}
"""By what checks want (``Result.wants``): how to give it, and what that is."""
REHEARSAL = ("-- torchrun train.py", "your own command: its first steps are rehearsed")
COLUMN = 26


def verdict(report: Report) -> str:
    """Return in a sentence what is wrong, or what kept ddpdoctor from telling."""
    found = ", ".join(_counts(report.findings()).values())
    missing = "; ".join(_missing(report))
    wrong = bool(report.findings(Severity.WARNING))
    if report.saw_nothing:
        return f"Nothing was looked at{f': {missing}' if missing else ''}."
    if missing:
        rest = found or "nothing wrong in what was looked at"
        return f"{found} found; incomplete: {missing}." if wrong else f"Incomplete: {missing}; {rest}."
    if wrong:
        return f"{found} found."
    return f"Nothing wrong was found{f'; {found}' if found else ''}."


def _missing(report: Report) -> Iterator[str]:
    """Yield what kept ddpdoctor from looking at all that the user asked for."""
    if crashed := report.of(Status.CRASHED):
        yield f"{number_of(len(crashed), 'check')} crashed, which is a fault of the check"
    if report.faults:
        yield f"{number_of(len(report.faults), 'target')} could not be examined"
    if report.late:
        yield f"the time ran out before {number_of(len(report.late), 'check')} (--timeout)"


def _counts(findings: list[Finding]) -> dict[Severity, str]:
    """Return how many findings there are of each severity that there are any of."""
    counts = Counter(finding.severity for finding in findings)
    return {level: number_of(counts[level], str(level)) for level in reversed(Severity) if counts[level]}


def number_of(count: int, name: str) -> str:
    """Return a number of things, with their name in the right form."""
    return f"{count} {name}{'' if count == 1 else 's'}"


def closing_text(report: Report, style: Style = PLAIN, *, verbose: bool = False) -> str:
    """Return the end of a report; its first line is the verdict."""
    lines = [
        *_hosts(report, style),
        *_verdict(report, style),
        *_faults(report, style),
        *_rehearsal(report, style),
    ]
    lines += _scope(report, style, verbose=verbose)
    return "\n".join(lines if any(_missing(report)) else [*lines, *_offers(report, style)])


def problem_text(report: Report, style: Style = PLAIN) -> str:
    """Return what kept ddpdoctor from looking at all that the user asked for; empty where nothing did."""
    if not report.saw_nothing and not any(_missing(report)):
        return ""
    return "\n".join([*_verdict(report, style), *_faults(report, style)])


def _verdict(report: Report, style: Style) -> Iterator[str]:
    lines = style.wrap(verdict(report), MARGIN, "")
    for level, words in _counts(report.findings()).items():
        lines = style.coloured(lines, level, words)
    return lines


def _hosts(report: Report, style: Style) -> Iterator[str]:
    if report.hosts is not None:
        yield from hosts_text(report.hosts, style)
        yield ""


def _faults(report: Report, style: Style) -> Iterator[str]:
    for fault in report.faults:
        yield from style.wrap(printable(fault), MARGIN * 2, MARGIN)


def _rehearsal(report: Report, style: Style) -> Iterator[str]:
    if (done := report.rehearsed) is None:
        return
    well = not report.faults and not report.findings(Severity.WARNING)
    parts = (number_of(done.ranks, "rank"), number_of(done.epochs, "epoch"), number_of(done.steps, "step"))
    said = f"The rehearsal of {printable(done.command)}{' went well' if well else ''}: {', '.join(parts)}"
    yield from style.wrap(f"{said} of each rank, in {done.seconds:.1f} s.", MARGIN, "")
    if done.note:
        yield from style.wrap(printable(done.note), MARGIN, MARGIN)


def _scope(report: Report, style: Style, *, verbose: bool) -> Iterator[str]:
    ran = len(report.results) - len(report.of(Status.NOT_RUN))
    said = f"{ran} of {number_of(len(report.results), 'check')} ran, in {report.seconds:.1f} s."
    hint = "" if verbose or not report.of(Status.NOT_RUN) else " --verbose says why the others did not."
    yield from style.wrap(said + hint, MARGIN, "")


def _offers(report: Report, style: Style) -> Iterator[str]:
    wanted = Counter(result.wants for result in report.of(Status.NOT_RUN))
    rows = [(*OFFERS[name], f" ({number_of(wanted[name], 'check')})") for name in OFFERS if wanted[name]]
    if report.rehearsed is None and wanted["model"] + wanted["loader"]:
        rows.append((*REHEARSAL, ""))
    if rows:
        yield "To have more looked at, give:"
    for what, meaning, count in rows:
        yield from style.wrap(f"{meaning}{count}", " " * COLUMN, f"{MARGIN}{what:{COLUMN - 2}}")
