"""A report of a watched training as Markdown, for an issue or a merge request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ddpdoctor.findings import Finding, Report, Result, Status
from ddpdoctor.report.text import printable
from ddpdoctor.report.verdict import verdict


def watched_markdown(report: Report, seen: str, steps: Sequence[str]) -> str:
    """Return what was found, what was watched (``seen``), and where the steps went, line by line."""
    return "\n".join(_lines(report, seen, steps)) + "\n"


def _lines(report: Report, seen: str, steps: Sequence[str]) -> Iterator[str]:
    yield f"**ddpdoctor: {inline(verdict(report))}** {inline(seen)}"
    for result in report.results:
        if result.status is Status.FAILED:
            for finding in result.findings:
                yield from _finding(result, finding)
        elif result.status is Status.CRASHED:
            yield from ("", f"`{result.code}` {result.slug} itself failed: {inline(result.reason)}")
    if steps:
        yield from block("\n".join(steps))


def _finding(result: Result, finding: Finding) -> Iterator[str]:
    severity = f"{finding.severity} " if finding.severity else ""
    yield from ("", f"### {severity}`{result.code}` {result.slug}", "", inline(finding.message))
    if place := str(finding.place):
        yield from ("", f"Where: {inline(place)}")
    yield from ("", "Seen:")
    yield from block("\n".join(f"{each.seen}{f' ({each.source})' * bool(each.source)}" for each in finding.evidence))
    yield from what_to_do(finding, result.code, "These causes are left, likeliest first:")


def what_to_do(finding: Finding, code: str, remain: str) -> Iterator[str]:
    """Yield what is right, the causes that ``remain`` if there are several, and the fix, line by line."""
    if expected := [each.expected for each in finding.evidence if each.expected]:
        yield f"Expected: {inline('; '.join(expected))}"
    if finding.ambiguity is not None:
        yield from ("", remain, "")
        yield from (f"{number}. {inline(cause)}" for number, cause in enumerate(finding.ambiguity.causes, 1))
        yield from ("", "This tells them apart:")
        yield from block(finding.ambiguity.command)
    yield from ("", f"Fix: {inline(finding.fix.summary)}")
    for text, kind in ((finding.fix.command, "sh"), (finding.fix.diff, "diff")):
        if text:
            yield from block(text, kind)
    yield f"More: `ddpdoctor explain {code}`"


def block(text: str, kind: str = "") -> Iterator[str]:
    """Yield a text as it stands, between fences."""
    text = printable(text)
    fence = "```" if "```" not in text else "~~~~~~"
    yield from ("", f"{fence}{kind}", text, fence, "")


def inline(text: str) -> str:
    """Keep what a program printed from becoming markup."""
    return "".join(f"\\{char}" if char in "\\`*_<>[]#|" else char for char in printable(" ".join(text.split())))
