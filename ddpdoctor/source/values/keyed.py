"""Ranks that lie in a dict of the options: ``opt["rank"] = dist.get_rank()``, and who else reads them there."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.source.text.bindings import Binding, dotted
from ddpdoctor.source.values.bound import OPTIONS, given

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.source.text.tree import Tree

KEYS = frozenset({"rank", "global_rank", "local_rank"})


def keyed(tree: Tree, node: ast.Subscript) -> list[tuple[Tree, ast.expr]]:
    """Return what the project stores under a key for a rank in the dicts of its options, each with its tree."""
    key = key_of(node)
    if key is None:
        return []
    return [*stored_under(tree, key), *(tree.keyed(key) if tree.keyed is not None else ())]


def key_of(node: ast.expr) -> str | None:
    """Return the key under which a rank is read of a dict of options, or stored in it."""
    match node:
        case ast.Subscript(value=ast.Name() | ast.Attribute() as held, slice=ast.Constant(value=str(key))):
            is_of_options = any(OPTIONS.match(each) for each in (dotted(held) or "").split("."))
            return key if key in KEYS and is_of_options else None
    return None


def stored_under(tree: Tree, key: str) -> Iterator[tuple[Tree, ast.expr]]:
    """Yield what a file stores under a key in the dicts of its options."""
    for node in tree.of(ast.Assign):
        for target in node.targets:
            if key_of(target) == key:
                yield tree, node.value
            parts = target.elts if isinstance(target, ast.Tuple) else []
            for place in (number for number, each in enumerate(parts) if key_of(each) == key):
                if isinstance(node.value, ast.Call):
                    yield from given(tree, Binding(node, whole=node.value, part=place)) or ()
