"""The lines of the loop that its time goes to, as a table of a page: each line once, with its share on each rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree as ET

from ddpdoctor.report.html.markup import add_table, add_text
from ddpdoctor.report.steps import LINE

FEW = 8  # ranks that have a column each
ROWS = 12
TITLE = "Which lines the time goes to"
MEANING = (
    "The thread that trains was looked at every few milliseconds. A line stands for all that it calls; where that is "
    "the script's own code, the innermost line that it spends most in is named."
)

Key = tuple[str, str, int]
"""What is done there, file, line."""


def add_lines(parent: ET.Element, profile: Mapping[str, Any]) -> None:
    """Add the table; nothing where no step was measured closely."""
    ranks = {int(rank): {_key(line): line for line in each.get("lines", ())} for rank, each in profile.items()}
    most: dict[Key, tuple[float, int]] = {}
    for rank, lines in sorted(ranks.items()):
        for key, line in lines.items():
            most[key] = max(most.get(key, (0.0, -rank)), (line["share"], -rank))
    longest = sorted((key for key in most if most[key][0] >= LINE), key=lambda key: -most[key][0])[:ROWS]
    if not longest:
        return
    section = ET.SubElement(parent, "section", {"class": "lines"})
    add_text(section, "h2", TITLE)
    few = len(ranks) <= FEW
    headers = [f"rank {rank}" for rank in sorted(ranks)] if few else ["least", "most", "on rank"]
    rows = []
    for key in longest:
        kind, file, number = key
        rank = -most[key][1]
        line = ranks[rank][key]
        shares = [each[key]["share"] if key in each else 0.0 for _, each in sorted(ranks.items())]
        told = [f"{share:.0%}" for share in shares] if few else [f"{min(shares):.0%}", f"{max(shares):.0%}", str(rank)]
        rows.append((*told, f"{file}:{number}", kind or "the script's own code", _inner(line)))
    classes = dict.fromkeys(range(len(headers)), "number") | {len(headers): "seen", len(headers) + 2: "seen"}
    columns = (*headers, "line of the loop", "what it does", "most of it at")
    add_table(section, "", columns, rows, classes, label=TITLE)
    add_text(section, "p", MEANING)


def _key(line: Mapping[str, Any]) -> Key:
    return str(line["kind"]), str(line["file"]), int(line["line"])


def _inner(line: Mapping[str, Any]) -> str:
    inner = line["inner"]
    there = (inner["file"], inner["line"]) == (line["file"], line["line"])
    return "" if there else f"{inner['file']}:{inner['line']} in {inner['function']}"
