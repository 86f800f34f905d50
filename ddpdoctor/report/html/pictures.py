"""Where steps go, as pictures of a page: plain SVG, with the same figures in a table behind each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree as ET

from ddpdoctor.report.html.markup import add_figures, add_key, add_picture, add_text
from ddpdoctor.report.steps import MEANING, ON_GPU, PARTS, ordered, share

ROWS = 32  # of a picture; more ranks are put together
COLUMNS = 120  # of the course of a rank
LEFT, WIDTH, ROW, GAP = 150, 800, 20, 6  # in units of the picture
WHOLE = 21  # characters of a name that fit beside the bars
SMALL = 0.08  # of a bar: no text fits
SHORT = 4  # seconds of a course whose quarters are told to a hundredth


@dataclass(frozen=True, slots=True)
class Row:
    """One rank, or ranks that follow each other, of which the slowest step stands for all."""

    name: str
    rank: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment of the training, in seconds of the host's monotonic clock; ``what`` happened then."""

    at: float
    what: str


def rows(steps: Mapping[str, Any]) -> list[Row]:
    """Return a row for each rank; where there are too many, for each group of them the rank that works longest."""
    ranks = ordered(steps)
    group = math.ceil(len(ranks) / ROWS)
    found = []
    for at in range(0, len(ranks), max(1, group)):
        part = ranks[at : at + group]
        (first, _), (last, _) = part[0], part[-1]
        number, slowest = max(part, key=lambda each: _own(each[1]))
        name = f"rank {first}" if first == last else f"rank {number} of {first} to {last}"
        found.append(Row(name, slowest))
    return found


def _own(rank: Mapping[str, Any]) -> float:
    """Return the seconds of a median step that are no backward, which holds the wait for others."""
    a_step = rank["a_step"]
    return float(a_step["total"][1] - a_step["backward"][1])


def add_pictures(parent: ET.Element, steps: Mapping[str, Any], marks: Sequence[Mapping[str, Any]]) -> None:
    """Add where a step goes, and how that changed with time."""
    if not steps:
        return
    section = ET.SubElement(parent, "section", {"class": "steps"})
    add_text(section, "h2", "Where a step goes")
    shown = rows(steps)
    add_key(section, {part: name for part, name in PARTS.items() if any(share(each.rank, part) for each in shown)})
    _bars(section, shown)
    text = MEANING
    if len(steps) > len(shown):
        text += " Of ranks that are put together the one is shown that keeps the others waiting most."
    if any(each["device"] == "cuda" for each in steps.values()):
        text += f" {ON_GPU}"
    add_text(section, "p", text)
    _course(section, shown, [Mark(float(each["at"]), str(each["what"])) for each in marks])
    _figures(section, steps)


def _bars(parent: ET.Element, shown: Sequence[Row]) -> None:
    """Draw a bar for each row as long as its median step, divided by the shares of its parts."""
    longest = max(row.rank["a_step"]["total"][1] for row in shown)
    svg = add_picture(
        parent, *_size(len(shown)), "The median step of each rank, in milliseconds, by what it is spent on."
    )
    for at, row in enumerate(shown):
        top, x = at * (ROW + GAP), float(LEFT)
        _label(svg, row.name, top)
        seconds = row.rank["a_step"]["total"][1]
        for part in PARTS:
            width = WIDTH * share(row.rank, part) * seconds / longest
            if width > 0:
                bar = ET.SubElement(svg, "rect", _box(x, top, width, ROW) | {"class": part})
                add_text(bar, "title", f"{row.name}: {PARTS[part]} {share(row.rank, part):.0%}")
            if width > SMALL * WIDTH:
                place = {"x": f"{x + 4:.1f}", "y": f"{top + ROW - 6}", "class": f"inside on-{part}"}
                add_text(svg, "text", f"{share(row.rank, part):.0%}", place)
            x += width
        add_text(
            svg, "text", f"{1e3 * seconds:.1f} ms", {"x": f"{min(x, LEFT + WIDTH) + 4:.1f}", "y": f"{top + ROW - 6}"}
        )


def _course(parent: ET.Element, shown: Sequence[Row], marks: Sequence[Mark]) -> None:
    """Draw for each row what its time went to, from the left to the right; marks are lines through all rows."""
    spans = [span for row in shown for span in row.rank["spans"]]
    start = min(span[0] - span[1] for span in spans)
    end = max([span[0] for span in spans] + [mark.at for mark in marks])
    seconds = max(end - start, 1e-9)
    add_text(parent, "h3", f"The course of {seconds:.1f} s")
    svg = add_picture(
        parent, *_size(len(shown) + 1), "What the time of each rank went to, from its first steps to its last."
    )
    for at, row in enumerate(shown):
        top = at * (ROW + GAP)
        _label(svg, row.name, top)
        for part, path in _paths(row.rank["spans"], start, seconds, top).items():
            if path:
                ET.SubElement(svg, "path", {"class": part, "d": path})
    bottom = len(shown) * (ROW + GAP)
    for share_of in (0, 0.25, 0.5, 0.75, 1):
        place = {"x": f"{LEFT + share_of * WIDTH:.1f}", "y": f"{bottom + ROW - 6}", "class": "axis"}
        add_text(svg, "text", f"{share_of * seconds:.{1 if seconds >= SHORT else 2}f} s", place)
    for mark in marks:
        x = f"{LEFT + WIDTH * (mark.at - start) / seconds:.1f}"
        line = ET.SubElement(svg, "line", {"x1": x, "x2": x, "y1": "0", "y2": f"{bottom}", "class": "mark"})
        add_text(line, "title", mark.what)
    for mark in marks:
        add_text(parent, "p", f"At {mark.at - start:.1f} s, marked by a line: {mark.what}.")


def _paths(spans: Sequence[Sequence[float]], start: float, seconds: float, top: float) -> dict[str, str]:
    """Return the course of a rank: for each part one path of upright bars, each as high as its share."""
    found = dict.fromkeys(PARTS, "")
    for left, right, column in _columns(spans, start, seconds):
        whole, low = max(column[0], 1e-12), top + ROW
        x, width = LEFT + WIDTH * left, max(WIDTH * (right - left), 0.5)
        for part, value in zip(PARTS, column[1:], strict=True):
            height = ROW * value / whole
            if height > 0.2:  # noqa: PLR2004 - of a unit: not to be seen
                found[part] += f"M{x:.1f} {low:.1f}h{width:.1f}v{-height:.1f}h{-width:.1f}z"
            low -= height
    return found


def _columns(
    spans: Sequence[Sequence[float]], start: float, seconds: float
) -> Iterator[tuple[float, float, list[float]]]:
    """Put spans that end in the same column together: its ends as shares of the width, and the sums."""
    by_column: dict[int, list[Sequence[float]]] = {}
    for span in spans:
        by_column.setdefault(int(COLUMNS * (span[0] - start) / seconds), []).append(span)
    for there in by_column.values():
        left = (min(span[0] - span[1] for span in there) - start) / seconds
        right = (max(span[0] for span in there) - start) / seconds
        yield max(left, 0.0), right, [sum(values) for values in zip(*(span[1:] for span in there), strict=True)]


def _figures(parent: ET.Element, steps: Mapping[str, Any]) -> None:
    headers = ("rank", "steps", "ms a step", "a tenth below", "a tenth above", *PARTS.values(), "waited for a core")
    rows = []
    for rank, each in ordered(steps):
        low, middle, high = (f"{1e3 * value:.1f}" for value in each["a_step"]["total"])
        shares = [f"{share(each, part):.1%}" for part in PARTS]
        rows.append((rank, each["steps"], middle, low, high, *shares, f"{each['waited_for_a_core']:.0%}"))
    add_figures(parent, "The figures of all ranks", headers, rows, dict.fromkeys(range(len(headers)), "number"))


def _size(count: int) -> tuple[float, float]:
    return LEFT + WIDTH + 90, count * (ROW + GAP)


def _label(svg: ET.Element, name: str, top: float) -> None:
    squeezed = {"textLength": f"{LEFT - 8}", "lengthAdjust": "spacingAndGlyphs"} if len(name) > WHOLE else {}
    add_text(svg, "text", name, {"x": "0", "y": f"{top + ROW - 6}"} | squeezed)


def _box(x: float, y: float, width: float, height: float) -> dict[str, str]:
    return {"x": f"{x:.1f}", "y": f"{y:.1f}", "width": f"{width:.1f}", "height": f"{height:.1f}"}
