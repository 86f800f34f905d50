"""YAML of jobs as a tree of nodes with their lines: block style, flow style, blocks of text, anchors and merges.

PyYAML is no dependency: its loader drops the lines that a finding needs, and the YAML of jobs is often a template
(``{{ .Values.x }}``), which it refuses. A node that holds a template, or anything else that is not understood, is
``is_open``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ddpdoctor.source.launching.yaml.flow import Flow
from ddpdoctor.source.launching.yaml.node import ALIAS, DEEPEST, OPEN, Node, merge, unquoted

KEY = re.compile(r"(?:\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)'|(?P<plain>[^\s#\-?&*!|>%@`{\[,][^#{}\[\]]*?|-[^\s:]+))"
                 r"\s*:(?=\s|$)")  # fmt: skip
BLOCK = re.compile(r"[|>][+-]?\d*[+-]?\s*(?:#.*)?$")
ANCHOR = re.compile(r"&(?P<name>[^\s,\[\]{}]+)\s*")
TEMPLATE = re.compile(r"\{\{.*\}\}$|\{%.*%\}$")
"""A line that is one of a template's own: of ``if``, ``end``, ``include``."""


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    begin: int
    indent: int
    text: str


def documents(text: str) -> list[Node]:
    """Return the documents of a file; what is not understood is an open node."""
    found: list[Node] = []
    lines: list[_Line] = []
    at = 0
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.rstrip("\r")
        if line.startswith("---"):
            found += _document(lines)
            lines = []
        else:
            bare = line.lstrip(" ")
            lines.append(_Line(number, at + len(line) - len(bare), len(line) - len(bare), bare))
        at += len(raw) + 1
    return found + _document(lines)


def _document(lines: list[_Line]) -> list[Node]:
    reader = _Reader(lines)
    reader.skip()
    if reader.at >= len(lines):
        return []
    return [reader.block(lines[reader.at].indent, 0)]


class _Reader:
    """Reads lines one after the other."""

    def __init__(self, lines: list[_Line]) -> None:
        self.lines = lines
        self.at = 0
        self.anchors: dict[str, Node] = {}

    def skip(self) -> bool:
        """Pass over empty lines, comments and lines of a template; whether there were any of these."""
        is_open = False
        while self.at < len(self.lines):
            text = self.lines[self.at].text
            is_templates = TEMPLATE.match(text) is not None
            if text and text[0] != "#" and not is_templates:
                break
            is_open |= is_templates
            self.at += 1
        return is_open

    def block(self, indent: int, depth: int) -> Node:
        """Read what stands at a depth: a list, a mapping or a text."""
        first = self.lines[self.at]
        node = Node(first.number, first.begin)
        if depth > DEEPEST:
            self.at = len(self.lines)
            return Node(first.number, is_open=True)
        while True:
            node.is_open |= self.skip()
            if self.at >= len(self.lines) or self.lines[self.at].indent < indent:
                return node
            line = self.lines[self.at]
            if line.indent > indent:
                node.is_open = True
                self.at += 1
            elif re.match(r"-(?:\s|$)", line.text):
                if node.entries:
                    return node  # a list of the key above, at the same depth
                node.items.append(self._item(line, indent, depth))
            elif match := KEY.match(line.text):
                if node.items:
                    return node
                key = (match["double"] or match["single"] or match["plain"] or "").strip()
                value = self._value(line, match.end(), indent, depth)
                if key == "<<":
                    merge(node, value)
                    continue
                node.entries = [each for each in node.entries if each[0] != key or key in node.places]
                node.entries.append((key, value))
                node.places[key] = line.number, line.begin + (line.text[0] in "\"'")
            else:
                return self._scalar(line, 0, indent - 1) if not node.entries and not node.items else self._odd(node)

    def _odd(self, node: Node) -> Node:
        node.is_open = True
        self.at += 1
        return node

    def _item(self, line: _Line, indent: int, depth: int) -> Node:
        rest = line.text[1:].lstrip(" ")
        if not rest or rest.startswith("#"):
            return self._below(line, indent + 1, depth)
        inner = line.indent + len(line.text) - len(rest)
        if (anchor := ANCHOR.match(rest)) is not None:
            return self._named(anchor["name"], self._anchored(line, inner - line.indent + anchor.end(), indent, depth))
        if not KEY.match(rest) and not re.match(r"-\s", rest):
            return self._scalar(line, len(line.text) - len(rest), indent)
        self.lines[self.at] = _Line(line.number, line.begin + inner - line.indent, inner, rest)
        return self.block(inner, depth + 1)

    def _value(self, line: _Line, end: int, indent: int, depth: int) -> Node:
        start = end + len(line.text[end:]) - len(line.text[end:].lstrip())
        rest = line.text[start:]
        if (anchor := ANCHOR.match(rest)) is not None:
            return self._named(anchor["name"], self._anchored(line, start + anchor.end(), indent, depth, key=True))
        if not rest or rest.startswith("#"):
            return self._below(line, indent, depth)
        return self._scalar(line, start, indent)

    def _anchored(self, line: _Line, start: int, indent: int, depth: int, *, key: bool = False) -> Node:
        """Read what stands behind an anchor: on its line, or below."""
        rest = line.text[start:]
        if not rest or rest.startswith("#"):
            return self._below(line, indent if key else indent + 1, depth)
        if key or not KEY.match(rest):
            return self._scalar(line, start, indent)
        self.lines[self.at] = _Line(line.number, line.begin + start, line.indent + start, rest)
        return self.block(line.indent + start, depth + 1)

    def _named(self, name: str, node: Node) -> Node:
        self.anchors[name] = node
        return node

    def _below(self, line: _Line, indent: int, depth: int) -> Node:
        self.at += 1
        self.skip()
        if self.at < len(self.lines):
            below = self.lines[self.at]
            if below.indent > indent or (below.indent == indent and re.match(r"-(?:\s|$)", below.text)):
                return self.block(below.indent, depth + 1)
        return Node(line.number, line.begin)

    def _scalar(self, line: _Line, start: int, indent: int) -> Node:
        """Read a text that begins on a line, and the lines that it goes on over."""
        text = line.text[start:]
        begin = line.begin + start
        self.at += 1
        if (alias := ALIAS.match(text)) is not None:
            return self.anchors.get(alias["name"]) or Node(line.number, begin, text, is_open=True)
        if BLOCK.match(text):
            return self._block_of_text(line, indent, text[0])
        parts = [text]
        while self.at < len(self.lines) and (not self.lines[self.at].text or self.lines[self.at].indent > indent):
            parts.append(self.lines[self.at].text)
            self.at += 1
        if text[0] in "[{":
            whole = "\n".join(re.sub(r"(?:^|\s)#.*$", "", each) for each in parts).rstrip()
            return Flow(whole, line.number, begin, self.anchors).read()
        whole = " ".join(each for each in parts if each)
        if text[0] in "\"'":
            return Node(line.number, begin + 1, *unquoted(whole), is_open=bool(OPEN.search(whole)))
        whole = re.sub(r"\s#.*$", "", whole).strip()
        return Node(line.number, begin, whole, is_open=bool(OPEN.search(whole)))

    def _block_of_text(self, line: _Line, indent: int, style: str) -> Node:
        begin = self.at
        while self.at < len(self.lines) and (not self.lines[self.at].text or self.lines[self.at].indent > indent):
            self.at += 1
        held = self.lines[begin : self.at]
        if not held:
            return Node(line.number, line.begin, style=style)
        text = "\n".join(" " * each.indent + each.text for each in held)
        return Node(held[0].number, held[0].begin - held[0].indent, text, style, is_open="{{" in text)
