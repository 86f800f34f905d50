"""What ``bench`` measured as a page: the text, and each pair of ranks or hosts as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from ddpdoctor.report.bench.text import Told, links_told, tuned_told
from ddpdoctor.report.html.markup import add_table, add_text
from ddpdoctor.report.html.page import empty_page, rendered
from ddpdoctor.report.html.pairs import add_pairs

if TYPE_CHECKING:
    from ddpdoctor.bench.links import Links
    from ddpdoctor.bench.pairs import Pairs
    from ddpdoctor.bench.settings import Tuned


def bench_page(links: Links | None, tuned: Tuned | None, pairs: Pairs | None, caveats: Sequence[str]) -> str:
    """Return the figures as HTML; ``caveats`` say what makes them those of another machine."""
    root, header, main = empty_page("ddpdoctor bench")
    ET.SubElement(header, "h1").text = (
        "How fast collectives and links are" if tuned is None else "How fast the model is"
    )
    for each in caveats:
        ET.SubElement(header, "p").text = each
    for told in (links_told(links) if links else None, tuned_told(tuned) if tuned else None):
        if told is not None:
            _add_told(main, told)
    if pairs is not None:
        add_pairs(main, pairs)
    return rendered(root)


def _add_told(parent: ET.Element, told: Told) -> None:
    """Add what follows from the figures, then the figures."""
    for indented, lines in groupby(told.follows, key=lambda line: line.startswith("  ")):
        for text in ["\n".join(line[2:] for line in lines)] if indented else lines:
            add_text(parent, "pre" if indented else "p", text)
    add_table(parent, told.about, told.headers, told.rows, named=True)
