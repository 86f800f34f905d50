"""Gradients that a source averages by hand, over all ranks."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.check import SPAWN, given, keyword

if TYPE_CHECKING:
    from ddpdoctor.check import Script


def averaged_by_hand(script: Script) -> ast.Call | None:
    """Return the first all_reduce of the gradients of all parameters, in a loop over them, which all ranks make."""
    for loop in script.nodes(ast.For):
        if not _is_over_parameters(loop.iter):
            continue
        names = {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)}
        for call in (each for each in script.inside(*loop.body) if isinstance(each, ast.Call)):
            tensor = given(call, 0, "tensor")
            if script.resolve(call.func) != "torch.distributed.all_reduce" or keyword(call, "group") is not None:
                continue
            if tensor is not None and _is_gradient(tensor, names) and _is_of_all(script, call):
                return call
    return None


def _is_over_parameters(iterated: ast.expr) -> bool:
    match iterated:
        case ast.Call(func=ast.Attribute(attr="parameters" | "named_parameters")):
            return True
        case ast.Call(func=ast.Name(id="enumerate" | "filter"), args=[*_, inner]):
            return _is_over_parameters(inner)
    return False


def _is_gradient(node: ast.expr, names: set[str]) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id=name), attr="grad"):
            return name in names
        case ast.Attribute(value=inner, attr="data"):
            return _is_gradient(inner, names)
    return False


def _is_of_all(script: Script, call: ast.Call) -> bool:
    """Whether no test around a call can keep ranks away, or lets through what is one process alone."""
    return not any(each.is_rankish(script.tree) for each in script.guards(call))


def hands_over_a_model(script: Script) -> bool:
    """Whether ranks that are spawned are passed a model, which they begin with then, or something that is not seen."""
    for call in script.calls(*SPAWN):
        target = given(call, 0, "fn")
        function = script.names_function(target) if target is not None else None
        names = [each.arg for each in function.args.args] if function is not None else ["model"]
        if any("model" in each or "net" in each for each in names):
            return True
    return False
