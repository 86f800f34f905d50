"""A Python file as it is written: its lines, the places in it, and edits of it."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ddpdoctor.findings import Edit, Evidence, Place

if TYPE_CHECKING:
    from ddpdoctor.source.text.notebook import Cells


@dataclass
class Written:
    """A parsed file; ``path`` is as findings show it. What is asked of it is worked out once.

    ``cells`` are those of a notebook, which is one module.
    """

    path: str
    text: str
    module: ast.Module
    cells: Cells | None = None

    @cached_property
    def lines(self) -> list[str]:
        """The lines of the file, without their ends; one of the file counts as Python counts."""
        return re.split(r"\r\n|\r|\n", self.text)

    def place(self, node: ast.AST) -> Place:
        """Return where a node begins."""
        line = int(getattr(node, "lineno", 1))
        before = self.lines[line - 1].encode()[: getattr(node, "col_offset", 0)]
        return Place(file=self.path, line=line, column=len(before.decode(errors="replace")) + 1)

    def code(self, node: ast.AST) -> str:
        """Return a node's source in one line."""
        if not isinstance(node, (ast.expr, ast.stmt)) or node.end_lineno is None:
            return " ".join(ast.unparse(node).split())
        lines = [line.encode() for line in self.lines[node.lineno - 1 : node.end_lineno]]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return " ".join(b"\n".join(lines).decode(errors="replace").split())

    def seen(self, node: ast.AST, expected: str = "") -> Evidence:
        """Return the line that a node begins on as evidence."""
        line = int(getattr(node, "lineno", 1))
        return Evidence(self.lines[line - 1].strip(), expected, f"line {line}")

    def replaced(self, node: ast.expr, text: str) -> Edit:
        """Return the edit that puts a text in the place of an expression."""
        assert node.end_lineno is not None  # noqa: S101 - the parser sets both
        assert node.end_col_offset is not None  # noqa: S101
        return Edit(node.lineno, node.col_offset, node.end_lineno, node.end_col_offset, text)

    def keyword_added(self, call: ast.Call, word: str) -> Edit:
        """Return the edit that gives a call one more argument, behind its last, or its only one."""
        given = [*call.args, *(each.value for each in call.keywords)]
        if not given:
            line, column = call.end_lineno or 0, (call.end_col_offset or 0) - 1
            return Edit(line, column, line, column, word)
        last = max(given, key=lambda each: (each.end_lineno, each.end_col_offset))
        line, column = last.end_lineno or 0, last.end_col_offset or 0
        return Edit(line, column, line, column, f", {word}")

    def removed(self, statement: ast.stmt, block: list[ast.stmt]) -> Edit:
        """Return the edit that takes a statement out of its block: its lines, where it has them for itself."""
        end_line, end = statement.end_lineno or 0, statement.end_col_offset or 0
        before = self.lines[statement.lineno - 1].encode()[: statement.col_offset]
        behind = self.lines[end_line - 1].encode()[end:]
        if len(block) > 1 and not before.strip() and not behind.strip():
            return Edit(statement.lineno, 0, end_line + 1, 0, "")
        return Edit(statement.lineno, statement.col_offset, end_line, end, "pass")

    def line_after(self, statement: ast.stmt, text: str) -> Edit:
        """Return the edit that puts a line below a statement, as far indented; beside it, where it shares its line."""
        line, end = statement.end_lineno or 0, statement.end_col_offset or 0
        before = self.lines[statement.lineno - 1].encode()[: statement.col_offset]
        last = self.lines[line - 1].encode()
        if before.strip() or not re.fullmatch(rb"\s*(?:#.*)?", last[end:]):
            return Edit(line, end, line, end, f"; {text}")
        return Edit(line, len(last), line, len(last), f"\n{before.decode(errors='replace')}{text}")

    def line_before(self, statement: ast.stmt, text: str) -> Edit:
        """Return the edit that puts a line before a statement, as far indented."""
        column = statement.col_offset
        indent = self.lines[statement.lineno - 1].encode()[:column].decode(errors="replace")
        return Edit(statement.lineno, column, statement.lineno, column, f"{text}\n{indent}")
