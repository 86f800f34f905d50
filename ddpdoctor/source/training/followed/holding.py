"""Which variables hold an expression, and where they are read."""

from __future__ import annotations

import ast
from collections import defaultdict
from typing import TYPE_CHECKING

from ddpdoctor.source.libraries import NOT_OURS
from ddpdoctor.source.text.bindings import dotted
from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.training.wraps.wrapped import possible
from ddpdoctor.source.values.bound import values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.source.text.bindings import Binding
    from ddpdoctor.source.text.tree import Tree


def tree_values(tree: Tree) -> dict[ast.AST, list[tuple[ast.AST | None, str, Binding]]]:
    """Return what each expression is bound to: whose, which name or attribute, and how."""
    if not tree.holders:
        found: dict[ast.AST, list[tuple[ast.AST | None, str, Binding]]] = defaultdict(list)
        for scope, names in tree.bindings.items():
            for name, bindings in names.items():
                for each in bindings:
                    if each.value is not None:
                        found[each.value].append((scope, name, each))
        for (owner, text), bindings in tree.attributes.items():
            for each in bindings:
                if each.value is not None:
                    found[each.value].append((owner, text, each))
        tree.holders = dict(found)
    return tree.holders


def reads(tree: Tree, scope: ast.AST | None, name: str) -> Iterator[ast.expr]:
    """Yield where a variable of a scope is read, or an attribute of a class."""
    if "." not in name:
        for node in tree.read.get(name, ()):
            if any(
                each in tree.bindings.get(scope or tree.module, {}).get(name, ()) for each in tree.lookup(name, node)
            ):
                yield node
        return
    for member in tree.members.get(name.rpartition(".")[2], ()):
        if isinstance(member.ctx, ast.Load) and dotted(member) == name and tree.owner(member, name) is scope:
            yield member


def in_force(tree: Tree, binding: Binding, node: ast.expr) -> bool:
    """Whether a variable can still hold what a binding gave it."""
    bindings = values(tree, node)
    return len(bindings) == 1 or binding in possible(tree, bindings, node)


def has_unknown_bases(tree: Tree, owner: ast.ClassDef) -> bool:
    """Whether a class inherits from one that is not seen, whose methods can use what its objects hold."""
    for base in owner.bases:
        path = resolve(tree, base) or "?"
        root = path.partition(".")[0]
        named = [each.node for each in tree.lookup(base.id, base)] if isinstance(base, ast.Name) else []
        if any(isinstance(each, ast.ClassDef) for each in named) or root == "object" or root in NOT_OURS:
            continue
        found = tree.abroad(path) if tree.abroad is not None else None
        if found is None or not isinstance(found[1], ast.ClassDef) or has_unknown_bases(found[0], found[1]):
            return True
    return False


def taken(tree: Tree, target: ast.expr) -> list[tuple[Tree, ast.AST]]:
    """Return where a variable is read that takes a part of a tuple."""
    name = dotted(target)
    if name is None:
        return []
    scope = tree.owner(target, name) if "." in name else tree.scope(target)
    return [(tree, each) for each in reads(tree, scope, name)]
