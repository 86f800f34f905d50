"""Findings as they are kept: without those that a comment is about, and in a notebook by its cells."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ddpdoctor.lint.comments import Ignore, ignores
from ddpdoctor.lint.examine import Found
from ddpdoctor.source.script import Script

if TYPE_CHECKING:
    from ddpdoctor.lint.examine import Source
    from ddpdoctor.source.text.notebook import Cells


def kept_of(parsed: Source, found: Iterable[Found]) -> tuple[list[Found], list[tuple[int, str, frozenset[str]]]]:
    """Return the findings that no comment is about, and the comments of our own that are about none."""
    comments = ignores(parsed.text, is_python=isinstance(parsed, Script))
    used = set()
    kept = []
    for each in found:
        quiet = [
            c for c in comments if c.line == each.finding.place.line and c.covers(each.check.code, each.check.slug)
        ]
        used.update(quiet)
        if not quiet:
            kept.append(each)
    return kept, list(_useless(set(comments) - used))


def _useless(comments: Iterable[Ignore]) -> Iterator[tuple[int, str, frozenset[str]]]:
    for each in sorted(comments, key=lambda comment: comment.line):
        if each.is_own:
            what = ", ".join(sorted(each.names)) or "anything"
            yield each.line, f"this comment ignores {what}, and there is nothing to ignore on its line", each.names


def in_cell(found: Found, cells: Cells) -> Found:
    """Return a finding with its place in a notebook, as people count: the cell, and the line within it."""
    finding = found.finding
    number, line = cells.at(finding.place.line or 1)
    evidence = tuple(replace(each, source=_cell(each.source, cells)) for each in finding.evidence)
    place = replace(finding.place, file=f"{finding.place.file}:cell {number}", line=line)
    return Found(found.check, replace(finding, place=place, evidence=evidence, fix=replace(finding.fix, edits=())))


def _cell(source: str, cells: Cells) -> str:
    match = re.fullmatch(r"line (\d+)", source)
    return "cell {}, line {}".format(*cells.at(int(match[1]))) if match else source
