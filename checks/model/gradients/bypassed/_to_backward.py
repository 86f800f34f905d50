"""Where in a source the result of a call of a model goes backward."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpdoctor.check import Script


def is_call_of(node: ast.AST, code: str) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == code


def is_without_gradients(script: Script, call: ast.Call) -> bool:
    outer = [node for node in script.tree.above(call) if isinstance(node, (ast.With, ast.AsyncWith))]
    words = [ast.unparse(item.context_expr) for node in outer for item in node.items]
    return any("no_grad" in word or "inference" in word or "no_sync" in word for word in words)


def backward_of(script: Script, call: ast.Call, around: ast.AST) -> ast.Call | None:
    """Return the call of backward that the result of a call flows into, by assignments of the same function."""
    held = {target.id for target in _targets(script, call)}
    for node in script.inside(around):
        if isinstance(node, ast.Assign) and node.lineno > call.lineno and held & _read(node.value):
            held |= {each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)}
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr="backward")) if node.lineno >= call.lineno:
                loss = node.args[0] if node.args else owner  # a framework's own is given the loss
                if held & _read(loss) or any(each is call for each in ast.walk(loss)):
                    return node
    return None


def _targets(script: Script, call: ast.Call) -> list[ast.Name]:
    statement = script.tree.statement(call)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return [each for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]


def _read(node: ast.expr) -> set[str]:
    """Return the names that an expression computes with; not of what it detaches or turns to numbers."""
    if any(isinstance(each, ast.Attribute) and each.attr in {"detach", "item", "data"} for each in ast.walk(node)):
        return set()
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
