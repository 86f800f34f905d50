"""What people read of the checks themselves: the list of all, and the page of one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from ddpdoctor.areas import AREAS
from ddpdoctor.facets import Instrument
from ddpdoctor.report.style import PLAIN, Style, table_text

if TYPE_CHECKING:
    from ddpdoctor.facets import Check

HEADERS = ("code", "slug", "severity", "found by", "finds")
GIVEN = {"model": " --model", "loader": " --loader", "checkpoint": " --checkpoint", "gpus": " (GPU)"}
"""What a probe cannot do without, as it is told after the command."""
MARGIN = "  "
INDENT = " " * 8  # below the codes
ITEM = re.compile(r"\s*(?:[-*]|\d+[.)]) ")


def rows(checks: Iterable[Check]) -> list[tuple[str, str, str, str, str]]:
    """Return a row for each check."""
    return [(check.code, check.slug, str(check.severity), ", ".join(found_by(check)), check.title) for check in checks]


def found_by(check: Check) -> Iterator[str]:
    """Yield the commands that find it, with what each must be given."""
    if probes := check.of(Instrument.PROBE):
        always = set.intersection(*(set(facet.needs) for facet in probes))
        yield "check" + "".join(given for name, given in GIVEN.items() if name in always)
    if check.of(Instrument.WATCH):
        yield "run"
    if check.of(Instrument.LOG):
        yield "explain"
    if check.of(Instrument.LINT):
        yield "lint"


def list_text(checks: Iterable[Check], style: Style = PLAIN) -> str:
    """Return the list of checks: for a terminal by area, with the title below the name; else a line for each."""
    if not style.is_terminal:
        return table_text(HEADERS, rows(checks))
    titles = {area.name: area.title for area in AREAS}
    lines: list[str] = []
    for area, group in groupby(checks, key=lambda check: check.area):
        heading = f"{area}: {titles[area]}" if area in titles else area
        lines += ["", *map(style.heading, style.wrap(heading))]
        for check in group:
            name = f"{check.code}  {check.slug}  {check.severity}, found by {', '.join(found_by(check))}"
            lines += style.coloured(style.wrap(name, INDENT, ""), check.severity)
            lines += style.wrap(check.title, INDENT)
    return "\n".join(lines[1:])


def page_text(check: Check, style: Style = PLAIN) -> str:
    """Return the page of a check, with its name above it."""
    commands = ", ".join(f"ddpdoctor {command}" for command in found_by(check))
    name = style.heading(f"{check.code} {check.slug}")
    about = style.wrap(f"{check.severity}, found by {commands}", MARGIN, "")
    return "\n".join([name, *style.coloured(about, check.severity), "", *_markdown(check.page, style)])


def _markdown(text: str, style: Style) -> Iterator[str]:
    """Yield the lines of a text as they are read on a terminal; what is to be pasted is not wrapped.

    Of Markdown it knows what pages use: headings, paragraphs, lists, and indented blocks to paste.
    """
    margin = ""
    for is_text, group in groupby(text.splitlines(), key=lambda line: bool(line.strip())):
        block = list(group)
        if not is_text:
            yield from block
        elif block[0].startswith("## "):
            yield style.heading(block[0].removeprefix("## "))
            margin = MARGIN
        elif block[0].startswith("    "):
            yield from (f"{margin}{line}" for line in block)
        else:
            for part in _paragraphs(block):
                item = ITEM.match(part)
                yield from style.wrap(part, margin + " " * len(item[0] if item else ""), margin)


def _paragraphs(block: list[str]) -> Iterator[str]:
    """Yield the items of a list, or the one paragraph, each as a line."""
    text = ""
    for line in block:
        if ITEM.match(line) and text:
            yield text
            text = ""
        text = f"{text} {line.strip()}".lstrip()
    yield text
