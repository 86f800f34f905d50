"""Loops over loaders in the user's source: whether one always runs until the loader has no more."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import last_name, tree_of

if TYPE_CHECKING:
    from ddpdoctor.check import Site

PASSING_ON = {"enumerate", "tqdm", "track"}  # what gives on all that it is given
LEAVES = (ast.Break, ast.Continue, ast.Return, ast.Yield, ast.YieldFrom, ast.Await, ast.While, ast.Try)


def runs_to_the_end(site: Site) -> bool:
    """Whether the ``for`` loop at a line, and each loop around it in its function, is left only at its end.

    A loop that may be left, or skip batches, can take as many on all ranks though the loaders have different numbers.
    """
    chain = _chain(tree_of(site.file).module, site.line)
    loops = [node for node in chain if isinstance(node, ast.For)]
    if not loops or not _gives_all(loops[-1].iter) or any(isinstance(node, (ast.While, ast.Try)) for node in chain):
        return False
    if any("join" in ast.unparse(item).lower() for node in chain if isinstance(node, ast.With) for item in node.items):
        return False
    return not any(isinstance(node, LEAVES) for node in _within(loops[0]))


def _chain(node: ast.AST, line: int) -> list[ast.AST]:
    """Return what a loop's line stands in, outermost first, from its function on; the loop is the last."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt) and child.lineno <= line <= (child.end_lineno or 0):
            inner = _chain(child, line)
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                return inner
            if isinstance(child, ast.For) and not inner and line > (child.iter.end_lineno or 0):
                return []  # the line stands in the body
            return [child, *inner]
    return []


def _gives_all(expression: ast.expr) -> bool:
    """Whether what is iterated is the loader itself, or passes on each of its batches."""
    if isinstance(expression, ast.Call):
        name = last_name(expression.func)
        return name in PASSING_ON and bool(expression.args) and _gives_all(expression.args[0])
    return isinstance(expression, (ast.Name, ast.Attribute, ast.Subscript))


def _within(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all that a statement holds; functions that are defined in it run elsewhere."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.Lambda)):
            yield child
            yield from _within(child)
