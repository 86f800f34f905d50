"""What Accelerate's ``prepare`` gives back: the variables that take it, and where they are read."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.source.text.bindings import dotted
from ddpdoctor.source.training.followed.holding import reads
from ddpdoctor.source.training.wraps.wrapped import possible
from ddpdoctor.source.values.bound import values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.source.text.bindings import Binding
    from ddpdoctor.source.text.tree import Tree


def given_back(tree: Tree, call: ast.Call) -> Iterator[tuple[ast.expr, list[ast.expr]]]:
    """Yield what a call of ``prepare`` is given, each with where the variable is read that takes it back.

    Nothing where they cannot be told apart.
    """
    statement = tree.parents.get(call)
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1 or call.keywords:
        return
    target = statement.targets[0]
    targets = target.elts if isinstance(target, ast.Tuple) else [target]
    if len(targets) != len(call.args) or any(isinstance(each, ast.Starred) for each in (*targets, *call.args)):
        return
    for handed, taken in zip(call.args, targets, strict=True):
        yield handed, _reads(tree, taken, call)


def _reads(tree: Tree, taken: ast.expr, call: ast.Call) -> list[ast.expr]:
    """Return where a variable is read while it holds what a call gave it, and nothing else."""
    name = dotted(taken)
    if name is None or "." in name:
        return []
    scope = tree.scope(taken)
    bindings = tree.bindings.get(scope, {}).get(name, ())
    bound = [each for each in bindings if call in {each.value, each.whole}]
    is_last = bool(bound) and all(each.line <= bound[0].line for each in bindings)
    return [
        each
        for each in reads(tree, scope, name)
        if bound and (_is_held(tree, bound[0], each) if tree.scope(each) is scope else is_last)
    ]


def _is_held(tree: Tree, bound: Binding, node: ast.expr) -> bool:
    held = possible(tree, values(tree, node), node)
    return len(held) == 1 and held[0] is bound
