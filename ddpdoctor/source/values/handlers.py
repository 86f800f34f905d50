"""The handler of an exception that a line is in, and the lines of which it handles the exceptions."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ddpdoctor.source.text.lines import statement_at, tree_of


@dataclass(frozen=True, slots=True)
class Handler:
    """``said`` as it stands there (``except ValueError``), its line, and the first and last line that it is for.

    ``name`` is that of the exception in it, empty where it has none.
    """

    said: str
    line: int
    first: int
    last: int
    name: str = ""

    def is_for(self, line: int) -> bool:
        """Whether an exception at this line comes to the handler."""
        return self.first <= line <= self.last


def swallows(handler: ast.ExceptHandler) -> bool:
    """Whether a handler lets the program go on below the whole statement."""
    away = (ast.Raise, ast.Break, ast.Continue, ast.Return)
    return not any(isinstance(each, away) for each in ast.walk(handler))


def said_of(handler: ast.ExceptHandler) -> str:
    """Return the head of a handler as it stands there."""
    return f"except {ast.unparse(handler.type)}" if handler.type else "except"


def counted_in_handlers(file: str, line: int) -> dict[str, int]:
    """Return the variables of the function around a line that count exceptions, and alone these: the handler's line."""
    tree = tree_of(file)
    at = statement_at(tree, line)
    function = tree.function(at) if at is not None else None
    found: dict[str, int] = {}
    others = set()
    for each in tree.of(ast.AugAssign):
        if at is None or tree.function(each) is not function or not isinstance(each.target, ast.Name):
            continue
        handler = next((up for up in tree.above(each) if isinstance(up, (ast.ExceptHandler, ast.For, ast.While))), None)
        if isinstance(handler, ast.ExceptHandler) and ast.unparse(each.value) == "1":
            found.setdefault(each.target.id, handler.lineno)
        else:
            others.add(each.target.id)
    return {name: number for name, number in found.items() if name not in others}


def handler_around(file: str, line: int) -> Handler | None:
    """Return the innermost handler that a line is in; None where it is in none."""
    found = None
    for node in tree_of(file).of(ast.Try):  # outer statements come first
        for each in node.handlers:
            if each.body[0].lineno <= line <= (each.body[-1].end_lineno or 0):
                found = Handler(
                    said_of(each), each.lineno, node.body[0].lineno, node.body[-1].end_lineno or 0, each.name or ""
                )
    return found


def handler_at(file: str, line: int) -> Handler | None:
    """Return the handler whose head is at a line."""
    for node in tree_of(file).of(ast.Try):
        for each in node.handlers:
            if each.lineno == line:
                last = node.body[-1].end_lineno or 0
                return Handler(said_of(each), line, node.body[0].lineno, last, each.name or "")
    return None


def finally_around(file: str, line: int) -> tuple[Handler, tuple[str, ...]] | None:
    """Return the innermost ``finally`` that a line is in, for the lines of its ``try``; and the handlers before it."""
    found = None
    for node in tree_of(file).of(ast.Try):
        if node.finalbody and node.finalbody[0].lineno <= line <= (node.finalbody[-1].end_lineno or 0):
            own = Handler("finally", node.finalbody[0].lineno, node.body[0].lineno, node.body[-1].end_lineno or 0)
            found = own, tuple(f"{said_of(each)} at line {each.lineno}" for each in node.handlers)
    return found


def body_of_with(file: str, line: int) -> Handler | None:
    """Return the innermost ``with`` that has its head at a line, and the lines that its end is for."""
    found = None
    tree = tree_of(file)
    nodes: list[ast.With | ast.AsyncWith] = [*tree.of(ast.With), *tree.of(ast.AsyncWith)]
    for node in nodes:
        if node.lineno <= line < node.body[0].lineno:
            said = ", ".join(ast.unparse(each.context_expr) for each in node.items)
            found = Handler(f"with {said}", node.lineno, node.body[0].lineno, node.body[-1].end_lineno or 0)
    return found
