"""Horovod's optimizer, as a source has it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .._scripts.source import target

if TYPE_CHECKING:
    from ddpdoctor.check import Script

OPTIMIZER = "horovod.torch.DistributedOptimizer"


def steps_of(script: Script, call: ast.Call) -> list[ast.Call]:
    """Return where the optimizer that a call makes is stepped, in the same function or in the file."""
    name = target(script, call)
    around = script.function(call)
    return [
        node
        for node in script.nodes(ast.Call)
        if isinstance(node.func, ast.Attribute)
        and node.func.attr == "step"
        and name is not None
        and ast.unparse(node.func.value) == name
        and (around is None or script.function(node) is around)
    ]
