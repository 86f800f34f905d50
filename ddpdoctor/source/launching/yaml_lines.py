"""YAML of jobs, line by line: keys with what they stand below.

PyYAML is no dependency: its loader drops the lines that a finding needs, and the YAML of jobs is often a template
(``{{ .Values.x }}``), which it refuses. What is not block style (``{a: b}``, anchors) is left unread, so a file that
has any of it where it would matter is one of which nothing is known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

LINE = re.compile(
    r"^ *(?P<dashes>(?:- +)*)"
    r"(?:(?P<quote>[\"']?)(?P<key>[\w./-]+)(?P=quote)\s*:(?:\s+(?P<value>.*))?|(?P<item>.+))$"
)
BLOCK = re.compile(r"^[|>][+-]?\d*[+-]?$")
VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{2,}$")


@dataclass(frozen=True, slots=True)
class Item:
    """A key with its value, or an item of a list (``name`` is empty).

    ``path`` are the keys that it stands below; ``document`` counts from 0; ``begin`` is where the name of a variable
    stands in the text. ``is_variable``: it sets the variable ``name``.
    """

    path: tuple[str, ...]
    name: str
    value: str
    line: int
    begin: int
    document: int
    is_variable: bool = False


def items(text: str) -> tuple[Item, ...]:
    """Read a text; what is below a block of text (``|``) is its value."""
    found: list[Item] = []
    stack: list[tuple[int, str]] = []
    document, at, block = 0, 0, -1
    for number, line in enumerate(text.split("\n"), 1):
        begin, at = at, at + len(line) + 1
        bare = line.rstrip("\r")
        if not bare.strip() or bare.lstrip().startswith("#"):
            continue
        indent = len(bare) - len(bare.lstrip(" "))
        if block >= 0 and indent > block:
            continue
        block = -1
        if bare.startswith("---"):
            document, stack = document + 1, []
            continue
        if (match := LINE.match(bare)) is None:
            continue
        depth = indent + len(match["dashes"])
        while stack and stack[-1][0] >= depth:
            stack.pop()
        item = _item(match, tuple(key for _, key in stack), number, begin, document)
        found.append(item)
        if match["key"] is not None:
            stack.append((depth, match["key"]))
            if BLOCK.match(item.value):
                block = depth
    return tuple(found)


def _item(match: re.Match[str], path: tuple[str, ...], line: int, begin: int, document: int) -> Item:
    raw = match["item"] if match["key"] is None else match["value"] or ""
    value = re.sub(r"\s+#.*$", "", raw).strip().strip("\"'")
    below = path[-1] if path else ""
    if match["key"] is None:
        named = re.match(r"([A-Z][A-Z0-9_]{2,})(?:=|$)", value) if below == "environment" else None
        if named is None:
            return Item(path, "", value, line, begin, document)
        start = begin + match.start("item") + raw.index(named[1])
        return Item(path, named[1], value[named.end() :], line, start, document, is_variable=True)
    if match["key"] == "name" and below == "env" and VARIABLE.match(value):
        start = begin + match.start("value") + raw.index(value)
        return Item(path, value, "", line, start, document, is_variable=True)
    is_variable = below in {"environment", "env", "envs"} and VARIABLE.match(match["key"]) is not None
    return Item(path, match["key"], value, line, begin + match.start("key"), document, is_variable)
