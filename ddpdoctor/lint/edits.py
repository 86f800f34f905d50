"""Edits of a source: applied to its text, or shown as a diff."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ddpdoctor.source.text.syntax import NO_PYTHON

if TYPE_CHECKING:
    from ddpdoctor.findings import Edit


def applied(text: str, edits: Iterable[Edit]) -> str:
    """Return the text with the edits, which do not overlap; one that overlaps an earlier one is left out."""
    lines = re.split(r"(?<=\n)|(?<=\r)(?!\n)", text)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    data = text.encode()
    spans = sorted({(starts[e.line - 1] + e.column, starts[e.end_line - 1] + e.end_column, e.text) for e in edits})
    pieces, at = [], 0
    for begin, end, new in spans:
        if begin >= at:
            pieces += [data[at:begin], _as_in(new, text).encode()]
            at = end
    return b"".join([*pieces, data[at:]]).decode()


def _as_in(new: str, text: str) -> str:
    return new.replace("\n", "\r\n") if "\r\n" in text else new


def is_offered(text: str, edits: Iterable[Edit], *, is_python: bool = True) -> bool:
    """Whether the text is another than before, and, where it is to be, Python."""
    changed = applied(text, edits)
    if not is_python:
        return changed != text
    try:
        ast.parse(changed)
    except NO_PYTHON:
        return False
    return changed != text


def as_diff(text: str, edits: Iterable[Edit]) -> str:
    """Return the changed lines, each below what it was, as they are pasted."""
    before, after = text.splitlines(), applied(text, edits).splitlines()
    lines = list(difflib.unified_diff(before, after, n=0, lineterm=""))[2:]
    return "\n".join(line for line in lines if not line.startswith("@@"))


def unified(name: str, before: str, after: str) -> str:
    """Return a patch that ``patch -p0`` and ``git apply -p0`` take."""
    lines = difflib.unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), name, name)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
