"""The parts that pages are made of: text, tables, figures that fold out below a picture, and the picture's frame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from xml.etree import ElementTree as ET

from ddpdoctor.report.junit import ILLEGAL


def add_text(parent: ET.Element, tag: str, text: str, attributes: Mapping[str, str] | None = None) -> ET.Element:
    """Add an element with a text, without characters that no browser takes."""
    element = ET.SubElement(parent, tag, dict(attributes or {}))
    element.text = ILLEGAL.sub("?", text)
    return element


def add_table(  # noqa: PLR0913 - what a table has
    parent: ET.Element,
    caption: str,
    headers: Sequence[str],
    rows: Iterable[Sequence[object]],
    classes: Mapping[int, str] | None = None,
    *,
    label: str = "",
    named: bool = False,
) -> None:
    """Add a table without the columns that are empty in all rows; ``classes`` are those of a column's cells.

    ``label`` names a table without a caption. ``named``: the first cell names its row, so that a screen reader says it
    with each of the others.
    """
    cells = [tuple(map(str, row)) for row in rows]
    shown = [number for number in range(len(headers)) if any(row[number] for row in cells)]
    table = ET.SubElement(_wide(parent, caption or label), "table", {"aria-label": label} if label else {})
    if caption:
        add_text(table, "caption", caption)
    top = ET.SubElement(ET.SubElement(table, "thead"), "tr")
    of_column = classes or {}
    for number in shown:
        kind = {"class": "number"} if of_column.get(number) == "number" else {}
        add_text(top, "th", headers[number], {"scope": "col"} | kind)
    body = ET.SubElement(table, "tbody")
    for row in cells:
        line = ET.SubElement(body, "tr")
        for number in shown:
            kind = {"class": of_column[number]} if number in of_column else {}
            is_name = named and number == shown[0]
            add_text(line, "th" if is_name else "td", row[number], kind | ({"scope": "row"} if is_name else {}))


def add_figures(
    parent: ET.Element,
    summary: str,
    headers: Sequence[str],
    rows: Iterable[Sequence[object]],
    classes: Mapping[int, str] | None = None,
) -> None:
    """Add the table of a picture's figures, folded."""
    details = ET.SubElement(parent, "details")
    add_text(details, "summary", summary)
    add_table(details, "", headers, rows, classes, label=summary, named=True)


def add_key(parent: ET.Element, words: Mapping[str, str]) -> None:
    """Add what the colours of a picture mean, by their class."""
    key = ET.SubElement(parent, "p", {"class": "key"})
    for name, meaning in words.items():
        pair = ET.SubElement(key, "span", {"class": "pair"})
        ET.SubElement(pair, "span", {"class": f"part {name}", "aria-hidden": "true"})
        add_text(pair, "span", meaning)


def add_picture(parent: ET.Element, width: float, height: float, title: str, note: str = "") -> ET.Element:
    """Add the frame of a picture, in units of its own, told in words to whoever does not see it."""
    size = f"0 0 {width:g} {height:.0f}"
    svg = ET.SubElement(_wide(parent, title), "svg", {"viewBox": size, "role": "img"})
    add_text(svg, "title", title)
    add_text(svg, "desc", f"The figures are in the table below.{note}")
    return svg


def _wide(parent: ET.Element, name: str) -> ET.Element:
    """Add what can be wider than the window: a group that the arrow keys move, once the tab key has come to it."""
    return ET.SubElement(parent, "div", {"class": "wide", "tabindex": "0", "role": "group", "aria-label": name})
