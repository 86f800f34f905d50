"""Which class an object is of: by the call that made it, whoever passes it on, or by a parameter's annotation."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.values.bound import function_named, given, values

if TYPE_CHECKING:
    from collections.abc import Collection

    from ddpdoctor.source.text.bindings import Binding
    from ddpdoctor.source.text.tree import Tree

DEEPEST = 4  # functions that pass an object on to each other


def is_made(tree: Tree, node: ast.expr, paths: Collection[str], depth: int = DEEPEST) -> bool:
    """Whether an object is of one of the classes of these full names, on every way that it comes."""
    if isinstance(node, ast.Call):
        return resolve(tree, node.func) in paths
    found = values(tree, node) if isinstance(node, (ast.Name, ast.Attribute)) and depth else []
    return bool(found) and all(_holds_one(tree, each, paths, depth - 1) for each in found)


def _holds_one(tree: Tree, binding: Binding, paths: Collection[str], depth: int) -> bool:
    parameter = binding.node
    if isinstance(parameter, ast.arg):
        noted = parameter.annotation
        if noted is not None and resolve(tree, noted) in paths:
            return True
        if launches := _launches(tree, parameter):
            return all(is_made(tree, each, paths, depth) for each in launches)
    found = given(tree, binding) or []
    return bool(found) and all(is_made(there, each, paths, depth) for there, each in found)


def _launches(tree: Tree, parameter: ast.arg) -> list[ast.expr]:
    """Return the objects whose ``launch(function)`` calls the function with themselves first, as Fabric's does."""
    function = tree.function(parameter)
    places = [*function.args.posonlyargs, *function.args.args] if isinstance(function, ast.FunctionDef) else []
    if not places or places[0] is not parameter:
        return []
    return [
        call.func.value
        for call in tree.of(ast.Call)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "launch" and call.args
        if isinstance(call.args[0], ast.Name) and function_named(tree, call.args[0]) is function
    ]
