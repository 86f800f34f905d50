"""A `continue` under a test, before both of two lines of a loop: who goes there makes neither of the calls."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.check import tree_of

if TYPE_CHECKING:
    from ddpdoctor.check import Site


def continue_before(file: str, line: int, call: Site | None) -> tuple[int, str] | None:
    """Return the line of such a `continue`, and its test; none where the test is of the loop's own count alone."""
    if call is None or call.file != file:
        return None
    lines = (line, call.line)
    loops = [each for each in tree_of(file).of(ast.For) if _holds(each, lines)]
    for loop in sorted(loops, key=lambda each: -each.lineno):
        counted = {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)}
        for each in loop.body:
            if isinstance(each, ast.If) and each.lineno < min(lines) and isinstance(each.body[-1], ast.Continue):
                named = {name.id for name in ast.walk(each.test) if isinstance(name, ast.Name)}
                if not (_is_counted(loop) and named <= counted):
                    return each.body[-1].lineno, ast.unparse(each.test)
    return None


def _holds(loop: ast.For, lines: tuple[int, int]) -> bool:
    return loop.body[0].lineno <= min(lines) and max(lines) <= (loop.end_lineno or 0)


def _is_counted(loop: ast.For) -> bool:
    """Whether the loop goes through numbers, which are the same on all ranks."""
    return isinstance(loop.iter, ast.Call) and ast.unparse(loop.iter.func) == "range"
