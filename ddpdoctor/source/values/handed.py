"""What a parameter is passed: by the calls of its own file, or, where there are none, by the trainings of others."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.values.arguments import passed, placed_argument
from ddpdoctor.source.values.sites import STARTS, call_sites

if TYPE_CHECKING:
    from ddpdoctor.source.text.bindings import Binding
    from ddpdoctor.source.text.tree import Tree


def handed(tree: Tree, parameter: Binding) -> list[tuple[Tree, ast.expr]] | None:
    """Return what all calls pass for a parameter, each with its tree; None where that cannot be seen of one of them."""
    own = passed(tree, parameter)
    if own is not None:
        return [(tree, each) for each in own]
    function = tree.function(parameter.node)
    calls = calls_abroad(tree, function)
    if not calls or not isinstance(function, ast.FunctionDef) or not isinstance(parameter.node, ast.arg):
        return None
    found = []
    for there, site in calls:
        spawned = resolve(there, site.func) in STARTS
        holds, given = placed_argument(tree, (there, site), function, parameter.node.arg, spawned=spawned)
        if given is None:
            return None
        found.append((holds, given))
    return found


def calls_abroad(tree: Tree, function: ast.AST | None) -> list[tuple[Tree, ast.Call]]:
    """Return the calls of a function by trainings in other files; none where its own file calls it as well."""
    if tree.callers is None or not isinstance(function, ast.FunctionDef) or call_sites(tree, function) != []:
        return []
    return tree.callers(function)
