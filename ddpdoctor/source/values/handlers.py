"""The handler of an exception that a line is in, and the lines of which it handles the exceptions."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ddpdoctor.source.text.lines import tree_of


@dataclass(frozen=True, slots=True)
class Handler:
    """``said`` as it stands there (``except ValueError``), its line, and the first and last line that it is for."""

    said: str
    line: int
    first: int
    last: int

    def is_for(self, line: int) -> bool:
        """Whether an exception at this line comes to the handler."""
        return self.first <= line <= self.last


def handler_around(file: str, line: int) -> Handler | None:
    """Return the innermost handler that a line is in; None where it is in none."""
    found = None
    for node in tree_of(file).of(ast.Try):  # outer statements come first
        for each in node.handlers:
            if each.body[0].lineno <= line <= (each.body[-1].end_lineno or 0):
                said = f"except {ast.unparse(each.type)}" if each.type else "except"
                found = Handler(said, each.lineno, node.body[0].lineno, node.body[-1].end_lineno or 0)
    return found
