"""Which ranks a variable holds something on: a writer that rank 0 alone has made, a bar that rank 0 alone shows."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.values.bound import value, values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.source.text.tree import Tree

BARS = frozenset({"tqdm", "trange"})
Test = tuple[ast.expr, bool]
"""A test, and whether it holds where the variable holds something."""


def tests_of_holders(tree: Tree, node: ast.expr) -> list[list[Test]]:
    """Return for each thing that a variable can hold the tests that it is there by; nothing where one is not known.

    What is empty (None, False) counts for nothing: where it stands, nothing is held.
    """
    found = []
    for each in values(tree, node):
        if each.value is None:
            return []
        if not _is_empty(each.value):
            found.append([*_chosen(each.value), *_around(tree, each.node)])
    return found


def shown_by(tree: Tree, node: ast.expr) -> ast.expr | None:
    """Return the test by which a progress bar is switched off, where a node is its counter, which then stays at 0."""
    if not isinstance(node, ast.Attribute) or node.attr != "n":
        return None
    made = value(tree, node.value)
    if not isinstance(made, ast.Call) or (resolve(tree, made.func) or "").rpartition(".")[2] not in BARS:
        return None
    return next((each.value for each in made.keywords if each.arg == "disable"), None)


def _chosen(node: ast.expr) -> Iterator[Test]:
    match node:
        case ast.IfExp(test=test, body=body, orelse=orelse):
            if _is_empty(orelse):
                yield test, True
            elif _is_empty(body):
                yield test, False


def _around(tree: Tree, statement: ast.AST) -> Iterator[Test]:
    child = statement
    for parent in tree.above(statement):
        if isinstance(parent, ast.If) and child is not parent.test:
            yield parent.test, child in parent.body
        child = parent


def _is_empty(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in (None, False)
