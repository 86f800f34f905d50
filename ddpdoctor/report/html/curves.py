"""How far the ranks went apart, step by step, as curves of a page: plain SVG, the same figures in a table behind."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any
from xml.etree import ElementTree as ET

from ddpdoctor.report.html.markup import add_figures, add_picture, add_text

Curve = Sequence[Any]
"""A figure for each step that was compared; None, or a text such as "nan", where there is none to draw."""
MOST = 8  # curves of a picture
LEFT, WIDTH, RIGHT, TOP, HEIGHT, BELOW = 70, 640, 90, 10, 200, 24  # in units of the picture
LINE = 14  # units between the names at the ends of curves
NUMBERS = 12  # of steps below a picture
CURVES = {
    "gradients": "How large the gradients are that each rank's optimizer was given, by their fingerprints",
    "weights": "How far each rank's weights lie from the mean of all ranks, in share of that mean",
}
LOSSES = "The loss of each rank's own batches, as its backward was given it"


def add_curves(parent: ET.Element, norms: Sequence[Mapping[str, Any]]) -> None:
    """Add a picture for each thing that the ranks did not have in common; nothing where all was equal."""
    apart = [
        (number, each, what) for number, each in enumerate(norms, 1) for what in CURVES if what not in each["equal"]
    ]
    apart += [(number, each, "losses") for number, each in enumerate(norms, 1) if _shows_losses(each)]
    apart.sort(key=lambda each: each[0])
    if not apart:
        return
    section = ET.SubElement(parent, "section", {"class": "curves"})
    add_text(section, "h2", "How far the ranks went apart")
    for number, each, what in apart:
        add_text(section, "h3", title(what) + (f": optimizer {number} of {len(norms)}" if len(norms) > 1 else ""))
        curves = {int(rank): figures[what] for rank, figures in each["ranks"].items()}
        drawn = furthest(curves)
        _picture(section, title(what), each["steps"], drawn)
        if len(drawn) < len(curves):
            add_text(section, "p", f"Of {len(curves)} ranks the {len(drawn)} are drawn that lie furthest apart.")
        rows = [(rank, *map(_said, curve)) for rank, curve in sorted(curves.items())]
        headers = ("rank", *(f"step {step}" for step in each["steps"]))
        add_figures(section, "The figures of all ranks", headers, rows, dict.fromkeys(range(len(headers)), "number"))


def title(what: str) -> str:
    """Return what a picture shows."""
    return LOSSES if what == "losses" else CURVES[what]


def _shows_losses(norms: Mapping[str, Any]) -> bool:
    """Whether the ranks went apart, and there are losses: of ranks that agree they differ as their batches do."""
    known = (figures.get("losses", ()) for figures in norms["ranks"].values())
    return any(what not in norms["equal"] for what in CURVES) and any(
        _is_number(each) for curve in known for each in curve
    )


def furthest(curves: Mapping[int, Curve]) -> dict[int, Curve]:
    """Return the curves that are drawn: all, or those that end furthest from the median, by rank."""
    last = {rank: next(filter(_is_number, reversed(curve)), 0.0) for rank, curve in curves.items()}
    middle = sorted(last.values())[len(last) // 2]
    chosen = sorted(curves, key=lambda rank: -abs(last[rank] - middle))[:MOST]
    return {rank: curves[rank] for rank in sorted(chosen)}


def spread(heights: Sequence[float]) -> list[float]:
    """Return heights of names, in the same order, that are apart by a line and as near as can be to these."""
    order = sorted(range(len(heights)), key=heights.__getitem__)
    found, below = [0.0] * len(heights), float(TOP + HEIGHT + LINE)
    lowest = [max(heights[at], TOP + LINE * number) for number, at in enumerate(order)]
    for at, height in zip(reversed(order), reversed(lowest), strict=True):
        found[at] = below = min(height, below - LINE)
    return found


def _picture(parent: ET.Element, title: str, steps: Sequence[int], curves: Mapping[int, Curve]) -> None:
    """Draw the curves over the steps that were compared, which stand at equal distances."""
    svg = add_picture(parent, LEFT + WIDTH + RIGHT, TOP + HEIGHT + BELOW, title)
    known = [each for curve in curves.values() for each in curve if _is_number(each)]
    lowest = min(0.0, *known) if known else 0.0
    highest = max(known, default=0.0)
    size = highest - lowest or 1.0
    _axes(svg, steps, lowest, lowest + size)
    ends: list[tuple[int, int, float]] = []
    for number, (rank, curve) in enumerate(curves.items()):
        points = [
            _point(at, len(steps), (each - lowest) / size) if _is_number(each) else None
            for at, each in enumerate(curve)
        ]
        for is_drawn, part in groupby(points, key=lambda point: point is not None):
            if is_drawn:
                _curve(svg, f"rank {rank}", number, [point for point in part if point is not None])
        ends += [(rank, number, point[1]) for point in reversed(points) if point is not None][:1]
    for (rank, number, _), height in zip(ends, spread([end for *_, end in ends]), strict=True):
        place = {"x": f"{LEFT + WIDTH + 8}", "y": f"{height + 4:.1f}", "class": f"curve{number}"}
        add_text(svg, "text", f"rank {rank}", place)


def _axes(svg: ET.Element, steps: Sequence[int], lowest: float, highest: float) -> None:
    for part in (0.0, 0.5, 1.0):
        x, y = _point(0, 2, part)
        ET.SubElement(svg, "path", {"d": f"M{x:.0f} {y:.0f}h{WIDTH}", "class": "grid"})
        add_text(
            svg,
            "text",
            f"{lowest + part * (highest - lowest):.3g}",
            {"x": f"{x - 8:.0f}", "y": f"{y + 4:.0f}", "class": "left"},
        )
    for at in range(0, len(steps), math.ceil(len(steps) / NUMBERS)):
        place = {"x": f"{_point(at, len(steps), 0)[0]:.1f}", "y": f"{TOP + HEIGHT + 18}", "class": "axis"}
        add_text(svg, "text", f"step {steps[at]}" if at == 0 else str(steps[at]), place)


def _curve(svg: ET.Element, name: str, number: int, points: Sequence[tuple[float, float]]) -> None:
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    add_text(ET.SubElement(svg, "path", {"d": path, "class": f"curve curve{number}"}), "title", name)
    for x, y in points:
        ET.SubElement(svg, "circle", {"cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": "2.5", "class": f"curve{number}"})


def _point(at: int, count: int, share: float) -> tuple[float, float]:
    return LEFT + WIDTH * at / max(1, count - 1), TOP + HEIGHT * (1 - share)


def _is_number(value: object) -> bool:
    return isinstance(value, float | int) and math.isfinite(value)


def _said(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float | int) else "" if value is None else str(value)
