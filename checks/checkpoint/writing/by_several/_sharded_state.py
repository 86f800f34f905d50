"""The state dict of a model that ``fully_shard`` has cut up, of which each rank has its own part."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.check import FULLY_SHARD, dotted

if TYPE_CHECKING:
    from ddpdoctor.check import Script


def is_always_sharded(script: Script) -> bool:
    """Whether each run of a file cuts up a model, for which there have to be ranks."""
    return any(script.function(each) is None and not script.guards(each) for each in script.calls(FULLY_SHARD))


def sharding_of(script: Script, save: ast.Call) -> ast.Call | None:
    """Return the ``fully_shard`` of the model whose ``state_dict()`` a call writes; None where there is none."""
    for node in ast.walk(save.args[0]) if save.args else ():
        match node:
            case ast.Call(func=ast.Attribute(value=model, attr="state_dict"), args=[], keywords=[]):
                for call in script.calls(FULLY_SHARD):
                    same = bool(call.args) and dotted(model) is not None and dotted(call.args[0]) == dotted(model)
                    if same and script.function(call) is script.function(save) and not script.guards(call):
                        return call
    return None
