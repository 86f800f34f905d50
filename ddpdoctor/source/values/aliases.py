"""One lock by two names of a file: where it was made, and whom it was handed to, tell so."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.source.text.lines import tree_of
from ddpdoctor.source.values.bound import origins

if TYPE_CHECKING:
    from ddpdoctor.source.text.tree import Tree


def are_one(file: str, one: tuple[str, int], other: tuple[str, int]) -> bool:
    """Whether two names, each on a line of the file, hold what one call has made, and nothing else."""
    tree = tree_of(file)
    first, second = (_made(tree, *each) for each in (one, other))
    return len(first) == 1 and first == second


def origins_at(tree: Tree, name: str, line: int) -> list[ast.expr]:
    """Return what can have made the value that a name, as a line writes it, holds there."""
    for node in tree.nodes:
        if isinstance(node, (ast.Name, ast.Attribute)) and node.lineno == line and ast.unparse(node) == name:
            return [each for _, each in origins(tree, node)]
    return []


def _made(tree: Tree, name: str, line: int) -> set[ast.expr]:
    """Return the calls that made what a name of a line can hold; nothing where that is not known of all of it."""
    found = origins_at(tree, name, line)
    return {*found} if all(isinstance(each, ast.Call) for each in found) else set()
