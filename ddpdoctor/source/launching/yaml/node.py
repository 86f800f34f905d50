"""A node of YAML: a text, a list or a mapping, with its line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

OPEN = re.compile(r"\{\{|\$\{\{|^[&*!]")
ALIAS = re.compile(r"\*(?P<name>[^\s,\[\]{}]+)\s*(?:#.*)?$")
TEXT = re.compile(r"\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^']|'')*)'|([^,\[\]{}\"'#][^,\[\]{}]*))\s*")
"""A text between brackets: in quotes of two kinds, or without."""
ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\", "/": "/"}
DEEPEST = 100


@dataclass
class Node:
    """A value: a text, a list (``items``) or a mapping (``entries``); ``begin`` is where a text stands in the file.

    ``style`` is the sign of a block of text, or of quotes, or empty. ``places`` are the lines of a mapping's own keys,
    and where they stand in the file; what it takes of others by ``<<`` has none.
    """

    line: int
    begin: int = 0
    text: str = ""
    style: str = ""
    items: list[Node] = field(default_factory=list)
    entries: list[tuple[str, Node]] = field(default_factory=list)
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    is_open: bool = False

    @property
    def number(self) -> int | None:
        """The whole number that a text is; None of all else."""
        return int(self.text) if self.text.isdecimal() else None

    def get(self, *path: str) -> Node | None:
        """Return what stands below keys; None where there is none."""
        at: Node | None = self
        for key in path:
            at = next((value for name, value in at.entries if name == key), None) if at else None
        return at

    def walk(self) -> Iterator[Node]:
        """Yield the node and all below it, each once: several names can stand for one."""
        waiting, seen = [self], set()
        while waiting:
            node = waiting.pop()
            if id(node) not in seen:
                seen.add(id(node))
                yield node
                waiting += reversed((*node.items, *(value for _, value in node.entries)))

    def written(self, depth: int = 0) -> str:
        """Return it as text, a key and its value a line; what stands for others is put in."""
        if depth > DEEPEST:
            return ""
        if self.items:
            return "[" + ", ".join(each.written(depth + 1) for each in self.items) + "]"
        lines = [f"{name}: {value.written(depth + 1)}" for name, value in self.entries]
        return "\n" + "\n".join(lines) if lines else self.text


def merge(node: Node, given: Node) -> None:
    """Put the entries of a mapping, or of several, into one that does not have them."""
    for each in given.items or [given]:
        node.is_open |= each.is_open or not each.entries
        known = {name for name, _ in node.entries}
        node.entries += [(name, value) for name, value in each.entries if name not in known]


def unquoted(text: str) -> tuple[str, str]:
    """Return a text without its quotes, and which they were."""
    match = TEXT.match(text)
    if match is None or match[3] is not None:
        return text, ""
    if match[1] is not None:
        return re.sub(r"\\(.)", lambda each: ESCAPES.get(each[1], each[1]), match[1]), '"'
    return match[2].replace("''", "'"), "'"
