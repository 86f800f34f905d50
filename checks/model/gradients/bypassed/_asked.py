"""What a source says of the ranks that it is for, and of what it wraps."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ._to_backward import is_call_of
from ._wrappers import wrappers

if TYPE_CHECKING:
    from ddpdoctor.check import Script


ASKS_FOR_RANKS = re.compile(r"gpus?\b|dist|world|parallel|hasattr|isinstance|\bddp|multi|num_processes", re.IGNORECASE)


def is_for_one_process(script: Script, call: ast.AST, model: str) -> bool:
    """Whether a call of a model is what one process does where several take its module: the `else` of such a test."""
    for guard in script.guards(call):
        branch = script.tree.parents[guard.test]
        if isinstance(branch, ast.If) and ASKS_FOR_RANKS.search(script.code(guard.test)):
            side = branch.orelse if guard.holds else branch.body
            if any(is_call_of(node, f"{model}.module") for each in side for node in ast.walk(each)):
                return True
    return False


def wrapping(script: Script, model: ast.expr) -> tuple[ast.Call, str] | None:
    """Return the call that is certain to have wrapped a model, and what it wraps it in."""
    wrap = script.wrap(model)
    if wrap is not None:
        is_certain = wrap.sure or wrap.in_ranks
        return (wrap.call, wrap.kind) if is_certain and wrap.kind == "DistributedDataParallel" else None
    for call, name, bare in wrappers(script):
        if script.code(model) == name == (script.code(bare) if bare is not None else "") and call.lineno < model.lineno:
            return call, f"the wrapper that {script.code(call.func)} returns"
    return None
