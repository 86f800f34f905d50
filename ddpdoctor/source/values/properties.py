"""Properties: what an attribute answers that is computed each time, by a class of the file."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.source.text.bindings import last_name
from ddpdoctor.source.values.bound import returned

if TYPE_CHECKING:
    from ddpdoctor.source.text.tree import Tree

KINDS = frozenset({"property", "cached_property"})


def of_property(tree: Tree, node: ast.Attribute) -> list[ast.expr]:
    """Return what the one property of a file returns that has an attribute's name, and that nobody sets besides."""
    named = [each for each in tree.of(ast.FunctionDef) if each.name == node.attr]
    found = [each for each in named if any(last_name(line) in KINDS for line in each.decorator_list)]
    if len(found) != 1 or len(named) != 1 or tree.class_of(found[0]) is None or _is_set(tree, node.attr):
        return []
    return list(returned(tree, found[0]))


def _is_set(tree: Tree, name: str) -> bool:
    return any(each.attr == name and isinstance(each.ctx, ast.Store) for each in tree.of(ast.Attribute))
