"""Functions that a spawn starts as ranks: whether they make the process group, or destroy it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    INIT,
    Evidence,
)

if TYPE_CHECKING:
    from ddpdoctor.check import Script


DESTROY = "torch.distributed.destroy_process_group"


def destroyed(script: Script, call: ast.Call) -> Evidence | None:
    """Return where a call destroys the process group in any case, itself or as the function that it calls does."""
    if script.resolve(call.func) == DESTROY:
        return script.seen(call)
    tree, function = script.defined(call.func) or (script.tree, None)
    for each in function.body if isinstance(function, ast.FunctionDef) else ():
        match each:
            case ast.Expr(value=ast.Call(func=named)) if script.names_in(tree, named) == DESTROY:
                return Evidence(ast.unparse(each), "", f"line {each.lineno} of {script.code(call.func)}")
    return None


def has_group(script: Script, spawn: ast.Call) -> bool:
    """Whether the process that starts the ranks can make a group of its own before: by a call, or one that it calls."""
    around = script.function(spawn)
    for call in script.nodes(ast.Call):
        if script.function(call) not in {around, None} or call is spawn:
            continue
        tree, function = script.defined(call.func) or (script.tree, None)
        inner = [each for each in ast.walk(function) if isinstance(each, ast.Call)] if function is not None else []
        if script.resolve(call.func) == INIT or any(script.names_in(tree, each.func) == INIT for each in inner):
            return True
    return False
