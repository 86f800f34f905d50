"""The report as a page for people: one file, which fetches nothing and runs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from ddpdoctor.findings import Report, Result, Status
from ddpdoctor.report.hosts import GOOD
from ddpdoctor.report.html.curves import add_curves
from ddpdoctor.report.html.heat import LEVELS, Cell, add_heat
from ddpdoctor.report.html.lines import add_lines
from ddpdoctor.report.html.markup import add_figures, add_table, add_text
from ddpdoctor.report.html.pictures import add_pictures
from ddpdoctor.report.text import printable
from ddpdoctor.report.verdict import number_of, verdict

if TYPE_CHECKING:
    from ddpdoctor.findings import Finding

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
FEW = 32  # ranks whose counts are not folded
COUNTS = ("batches", "forwards", "steps", "communications")


def as_page(report: Report, facts: Mapping[str, Any]) -> str:
    """Return the report as HTML: the verdict, each finding, what ranks were watched, what was not looked at.

    ``facts`` is what was known of the host; of a watched training ``seen`` says how much was watched, ``watched`` has
    the counts of each rank, ``steps`` where its steps went, ``profile`` what was measured closely, ``marks`` moments of
    it, and ``norms`` what the compared steps had of each rank.
    """
    root, header, main = empty_page(f"ddpdoctor: {verdict(report)}")
    _heading(header, report, facts.get("seen", ""))
    for result in report.of(Status.FAILED):
        for finding in result.findings:
            _finding(main, result, finding)
    add_pictures(main, facts.get("steps", {}), facts.get("marks", ()))
    add_lines(main, facts.get("profile", {}))
    add_curves(main, facts.get("norms", ()))
    _hosts(main, report)
    _ranks(main, facts.get("watched", {}))
    _others(main, report)
    return rendered(root)


def empty_page(title: str) -> tuple[ET.Element, ET.Element, ET.Element]:
    """Return a page with its header and its main part, which are empty."""
    root = ET.Element("html", lang="en")
    head = ET.SubElement(root, "head")
    ET.SubElement(head, "meta", charset="utf-8")
    ET.SubElement(head, "meta", {"http-equiv": "Content-Security-Policy", "content": POLICY})
    ET.SubElement(head, "meta", name="viewport", content="width=device-width, initial-scale=1")
    add_text(head, "title", title)
    add_text(head, "style", (resources.files("ddpdoctor.report.html") / "page.css").read_text(encoding="utf-8"))
    body = ET.SubElement(root, "body")
    return root, ET.SubElement(body, "header"), ET.SubElement(body, "main")


def rendered(root: ET.Element) -> str:
    """Return a page as text."""
    return f"<!doctype html>\n{ET.tostring(root, encoding='unicode', method='html')}\n"


def _heading(header: ET.Element, report: Report, seen: str) -> None:
    add_text(header, "h1", verdict(report))
    ran = len(report.results) - len(report.of(Status.NOT_RUN))
    looked = seen or f"{ran} of {number_of(len(report.results), 'check')} ran, in {report.seconds:.1f} s."
    add_text(header, "p", looked)
    for fault in report.faults:
        add_text(header, "p", fault)
    if (done := report.rehearsed) is not None:
        parts = (number_of(done.ranks, "rank"), number_of(done.epochs, "epoch"), number_of(done.steps, "step"))
        add_text(header, "p", f"Rehearsed: {done.command}: {', '.join(parts)} of each rank. {done.note}")


def _finding(parent: ET.Element, result: Result, finding: Finding) -> None:
    article = ET.SubElement(parent, "article", {"class": str(finding.severity)})
    add_text(article, "div", f"{finding.severity} {result.code} {result.slug}", {"class": "level"})
    add_text(article, "h2", finding.message)
    if place := str(finding.place):
        add_text(article, "p", place, {"class": "where"})
    rows = [(each.seen, each.expected, each.source) for each in finding.evidence]
    add_table(article, "Evidence", ("seen", "expected", "where"), rows, {0: "seen", 1: "seen", 2: "source"})
    if finding.table is not None:
        add_table(article, "Ranks", finding.table.headers, finding.table.rows)
    if finding.ambiguity is not None:
        add_text(article, "p", f"What remains: {'; or '.join(finding.ambiguity.causes)}. To tell them apart:")
        add_text(article, "pre", finding.ambiguity.command)
    add_text(article, "p", f"Fix: {finding.fix.summary}")
    for pasted in filter(None, (finding.fix.command, finding.fix.diff)):
        add_text(article, "pre", pasted)
    add_text(article, "code", f"ddpdoctor explain {result.code}")


def _hosts(parent: ET.Element, report: Report) -> None:
    """Add who reaches whom, where several hosts were asked."""
    if report.hosts is None or len(report.hosts.matrix.rows) < 2:  # noqa: PLR2004 - nobody to reach
        return
    cells = [
        [Cell(str(cell), -1 if at == number else 0 if cell in GOOD else LEVELS - 1) for at, cell in enumerate(row[1:])]
        for number, row in enumerate(report.hosts.matrix.rows)
    ]
    told = f"{len(report.hosts.names)} of {report.hosts.expected} hosts: each tried the data port of each other."
    names = [printable(str(each).removeprefix("to ")) for each in report.hosts.matrix.headers[1:]]
    add_heat(parent, "Who reaches whom", names, cells, told, {0: "reached", LEVELS - 1: "not reached"})


def _ranks(parent: ET.Element, watched: Mapping[str, Mapping[str, float]]) -> None:
    if watched:
        ordered = sorted(watched.items(), key=lambda item: int(item[0]))
        rows = [(rank, *(int(counts[name]) for name in COUNTS)) for rank, counts in ordered]
        add = add_table if len(rows) <= FEW else add_figures
        add(parent, "What the ranks did", ("rank", *COUNTS), rows, dict.fromkeys(range(5), "number"))


def _others(parent: ET.Element, report: Report) -> None:
    """Add the checks that found nothing, and why others were not run: what nobody looked at is not well."""
    for status, title in ((Status.CRASHED, "crashed"), (Status.NOT_RUN, "not run"), (Status.PASSED, "passed")):
        if results := report.of(status):
            details = ET.SubElement(parent, "details", {"open": ""} if status is Status.CRASHED else {})
            told = f"{number_of(len(results), 'check')} {title}"
            add_text(details, "summary", told)
            rows = [(f"{each.code} {each.slug}", each.title, each.reason) for each in results]
            add_table(details, "", ("check", "what can be wrong", "because"), rows, label=told, named=True)
