"""Which expressions of a source hold a model that fully_shard has split, for certain."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.check import FULLY_SHARD, by_parameter, dotted, given

if TYPE_CHECKING:
    from ddpdoctor.check import Script

DEPTH = 3


def is_fully_sharded(script: Script, node: ast.expr, depth: int = DEPTH) -> bool:
    """Whether each call of the file has split what an expression holds, by then, on every way.

    A parameter is what all calls of its function, of which there are some, pass for it.
    """
    name, function = dotted(node), script.function(node)
    if name is None or not depth:
        return False
    if isinstance(function, ast.FunctionDef) and name in {
        each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)
    }:
        sites = script.sites(function)
        passed = [by_parameter(function, each).get(name) for each in sites]
        return bool(passed) and all(each is not None and is_fully_sharded(script, each, depth - 1) for each in passed)
    return any(_is_split_at(script, call, name, node) for call in script.calls(FULLY_SHARD))


def _is_split_at(script: Script, call: ast.Call, name: str, node: ast.expr) -> bool:
    """Whether a call of fully_shard, which nothing tests, splits what a name holds before it is read."""
    model = given(call, 0, "module")
    if model is None or dotted(model) != name or script.guards(call):
        return False
    if name.startswith("self."):
        return script.tree.class_of(call) is script.tree.class_of(node)
    return script.function(call) is script.function(node) and call.lineno < node.lineno
