"""YAML in flow style: ``[a, "b"]`` and ``{a: b}``, one within the other."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ddpdoctor.source.launching.yaml.node import ALIAS, DEEPEST, OPEN, TEXT, Node, merge, unquoted

KEY = re.compile(r"(\"[^\"]*\"|'[^']*'|[^,:\[\]{}]+?)\s*:(?=[\s\[{\"']|$)")


@dataclass
class Flow:
    """Reads a list or a mapping of a text that begins on a line; what is not understood is open."""

    text: str
    line: int
    begin: int
    anchors: dict[str, Node]
    at: int = 0

    def read(self, depth: int = 0) -> Node:
        """Read the list or mapping that opens here."""
        node = Node(self.line + self.text.count("\n", 0, self.at), self.begin)
        closes = "]" if self.text[self.at] == "[" else "}"
        self.at += 1
        while self.at < len(self.text) and depth < DEEPEST:
            if self.text[self.at] in ", \n\t":
                self.at += 1
            elif self.text[self.at] == closes:
                self.at += 1
                return node
            elif closes == "]":
                node.items.append(self._value(depth))
            elif match := KEY.match(self.text, self.at):
                place = self.line, self._place() + (match[1][0] in "\"'")
                self.at = match.end()
                value = self._value(depth)
                key = unquoted(match[1].strip())[0].strip()
                if key == "<<":
                    merge(node, value)
                else:
                    node.entries.append((key, value))
                    node.places[key] = place
            else:
                break
        node.is_open = True
        self.at = len(self.text)
        return node

    def _value(self, depth: int) -> Node:
        while self.text[self.at : self.at + 1].isspace():
            self.at += 1
        here = self.line + self.text.count("\n", 0, self.at)
        if self.text[self.at : self.at + 1] in {"[", "{"} and not self.text.startswith("{{", self.at):
            return self.read(depth + 1)
        begin = self._place()
        match = TEXT.match(self.text, self.at)
        if match is None or not match[0].strip():
            if self.text[self.at : self.at + 1] in {",", "]", "}"}:
                return Node(here, begin)
            self.at = len(self.text)
            return Node(here, begin, is_open=True)
        self.at = match.end()
        words, style = unquoted(match[0].strip())
        if not style and (alias := ALIAS.match(words)) is not None and alias["name"] in self.anchors:
            return self.anchors[alias["name"]]
        return Node(here, begin + len(style), words, style, is_open=bool(OPEN.search(words)))

    def _place(self) -> int:
        """Return where this stands in the file; of a text of several lines, where that begins."""
        return self.begin + (0 if "\n" in self.text else self.at)
