"""Which loops stand around a line, and what counts them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.source.text.syntax import parsed
from ddpdoctor.source.text.tree import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOPS = (ast.For, ast.AsyncFor, ast.While)


def loop_counters(file: str, line: int) -> set[str]:
    """Return the variables that the loops around a line, in its function, set or count up."""
    found = set()
    for loop in loops_around(file, line):
        if isinstance(loop, (ast.For, ast.AsyncFor)):
            found |= {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)}
        for each in _own(loop):
            if isinstance(each, ast.AugAssign) and isinstance(each.target, ast.Name):
                found.add(each.target.id)
    return found


def repeats_until(file: str, line: int) -> str:
    """Return the condition of the innermost loop around a line, in its function, where that is a ``while``."""
    inner = next(reversed(loops_around(file, line)), None)
    return f"while {ast.unparse(inner.test)}" if isinstance(inner, ast.While) else ""


def _function(file: str, line: int) -> ast.AST | None:
    found = None
    for node in ast.walk(parsed(file)):  # outer functions come first
        if isinstance(node, FUNCTIONS) and _holds(node, line):
            found = node
    return found


def loops_around(file: str, line: int) -> list[ast.For | ast.AsyncFor | ast.While]:
    """Return the loops around a line within its function, outermost first."""
    function = _function(file, line) or parsed(file)
    return [each for each in _own(function) if isinstance(each, LOOPS) and _is_in(each, line)]


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what is below a node, outer before inner, and not in a function of its own."""
    waiting = list(ast.iter_child_nodes(node))
    while waiting:
        each = waiting.pop(0)
        yield each
        if not isinstance(each, (*FUNCTIONS, ast.ClassDef)):
            waiting += ast.iter_child_nodes(each)


def _holds(node: ast.AST, line: int) -> bool:
    first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
    return bool(first <= line <= (last or 0))


def _is_in(loop: ast.For | ast.AsyncFor | ast.While, line: int) -> bool:
    """Whether a line is of the loop; its first is, where the next item comes from."""
    return loop.lineno <= line <= (loop.body[-1].end_lineno or 0)
