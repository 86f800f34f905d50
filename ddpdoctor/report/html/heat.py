"""A square of coloured cells, a row and a column for each rank or host, with the same figures in a table behind."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from ddpdoctor.report.html.markup import add_figures, add_key, add_picture, add_text

ROWS = 48  # of a picture; more members are put together
WIDEST = 26  # units of a cell
WIDTH, LEFT, TOP = 640, 170, 24
WHOLE = 25  # characters of a label that fit beside the cells
LEVELS = 5
BY_FACTORS = {0: "the best, and what is near it", 1: "worse by 2", 2: "by 3", 3: "by 6", 4: "by 10 or more"}
"""How ``levels`` are told beside a picture."""
LISTED = 200  # cells that the table lists where it is too large to show all: the worst


@dataclass(frozen=True, slots=True)
class Cell:
    """What one member has with another: ``level`` from 0, the best, to LEVELS - 1; -1 where there is nothing."""

    text: str
    level: int = -1


def levels(values: Sequence[float | None], *, high_is_good: bool) -> list[int]:
    """Return a level for each value, by factors: the best and what is near it is 0, a tenth of it, and less, 4."""
    known = [each for each in values if each]
    if not known:
        return [-1] * len(values)
    best = max(known) if high_is_good else min(known)
    return [
        -1 if not each else min(LEVELS - 1, int((LEVELS - 1) * abs(math.log10(each / best)) + 0.01)) for each in values
    ]


def add_heat(  # noqa: PLR0913, PLR0917 - what a picture needs
    parent: ET.Element,
    title: str,
    names: Sequence[str],
    cells: Sequence[Sequence[Cell]],
    told: str,
    key: Mapping[int, str],
) -> None:
    """Add the picture and its table; where there are many members, a cell shows the worst of those it stands for.

    ``key`` says what the levels mean.
    """
    section = ET.SubElement(parent, "section", {"class": "heat"})
    add_text(section, "h2", title)
    add_text(section, "p", told)
    add_key(section, {f"level{level}": words for level, words in key.items()})
    group, short = max(1, math.ceil(len(names) / ROWS)), _without_domain(names)
    count = math.ceil(len(names) / group)
    size = min(WIDEST, WIDTH / count)
    senders = " Rows are the senders, columns the receivers."
    svg = add_picture(section, LEFT + WIDTH, TOP + count * size, title, senders)
    for row in range(count):
        members = range(row * group, min(len(names), (row + 1) * group))
        y = TOP + row * size
        label = _label(short, members)
        squeezed = {"textLength": f"{LEFT - 8}", "lengthAdjust": "spacingAndGlyphs"} if len(label) > WHOLE else {}
        add_text(svg, "text", label, {"x": "0", "y": f"{y + size - 4:.1f}"} | squeezed)
        if count * 3 <= WIDTH / 8 or row % 8 == 0:
            add_text(svg, "text", str(members[0]), {"x": f"{LEFT + row * size:.1f}", "y": "14"})
        for column in range(count):
            others = range(column * group, min(len(names), (column + 1) * group))
            cell = max((cells[a][b] for a in members for b in others), key=lambda each: each.level)
            if cell.level >= 0:
                box = {"x": f"{LEFT + column * size:.1f}", "y": f"{y:.1f}", "width": f"{size - 1:.1f}"}
                rect = ET.SubElement(svg, "rect", {**box, "height": f"{size - 1:.1f}", "class": f"level{cell.level}"})
                add_text(rect, "title", f"{_label(names, members)} to {_label(names, others)}: {cell.text}")
    _figures(section, names, cells)


def _label(names: Sequence[str], members: range) -> str:
    first, last = names[members[0]], names[members[-1]]
    return first if len(members) == 1 else f"{first} to {last}"


def _without_domain(names: Sequence[str]) -> Sequence[str]:
    """Return names without the domain that all of them have."""
    parts = [each.partition(".") for each in names]
    domains = {domain for _, _, domain in parts}
    is_one = len(domains) == 1 and any(each.isalpha() for each in "".join(domains))
    return [first for first, _, _ in parts] if is_one else names


def _figures(section: ET.Element, names: Sequence[str], cells: Sequence[Sequence[Cell]]) -> None:
    found = [(cell, a, b) for a, row in enumerate(cells) for b, cell in enumerate(row) if cell.level >= 0]
    worst = sorted(found, key=lambda each: -each[0].level)[:LISTED]
    rest = "" if len(worst) == len(found) else f", the {len(worst)} worst of {len(found)}"
    rows = [(names[a], names[b], cell.text) for cell, a, b in worst]
    add_figures(section, f"The figures{rest}", ("from", "to", "measured"), rows)
