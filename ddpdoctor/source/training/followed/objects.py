"""Where what an object keeps is read outside of its class: ``Loaders(args, "train").data``."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.source.callers.literal import is_closed_to
from ddpdoctor.source.training.followed.holding import in_force, reads, tree_values
from ddpdoctor.source.values.sites import seen_sites

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.source.text.tree import Tree


def read_outside(tree: Tree, owner: ast.ClassDef, name: str, stored: ast.AST) -> Iterator[tuple[Tree, ast.Attribute]]:
    """Yield where an attribute is read of objects whose ``__init__`` stores an expression in it, each with its tree.

    An object that was made with literals by which ``__init__`` does not come there keeps something else.
    """
    made = [each.node for each in tree.bindings.get(owner, {}).get("__init__", [])]
    begins = made[0] if len(made) == 1 else None
    if not isinstance(begins, ast.FunctionDef) or tree.function(stored) is not begins:
        return
    for there, call in seen_sites(tree, begins):
        if not is_closed_to(tree, stored, there, call):
            yield from ((there, each) for each in _members(there, call, name.removeprefix("self.")))


def _members(tree: Tree, made: ast.Call, name: str) -> Iterator[ast.Attribute]:
    held = tree_values(tree).get(made, ())
    uses = [each for scope, text, binding in held for each in reads(tree, scope, text) if in_force(tree, binding, each)]
    for use in (made, *uses):
        parent = tree.parents.get(use)
        if isinstance(parent, ast.Attribute) and parent.attr == name and isinstance(parent.ctx, ast.Load):
            yield parent
