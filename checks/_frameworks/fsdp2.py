"""What the functions of torch.distributed.checkpoint give of a model that fully_shard has split."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.check import FSDP, FULLY_SHARD, given, is_open, keyword

if TYPE_CHECKING:
    from ddpdoctor.check import Script

STATE = "torch.distributed.checkpoint.state_dict"
OF_SHARDS = frozenset(f"{STATE}.get_{name}state_dict" for name in ("", "model_", "optimizer_"))
"""What gives the state of a model that is sharded, whole or in shards."""


def gathers(script: Script, call: ast.Call) -> bool | None:
    """Return whether one of these gathers the shards of all ranks; None where its options are not seen.

    Of fully_shard's model it does where it is told to give the whole; else it gives each rank its own, and waits for
    nobody, as of a model that is not sharded. FullyShardedDataParallel gathers the parameters for either.
    """
    if any(script.calls(FSDP)):
        return True
    if not any(script.calls(FULLY_SHARD)):
        return False
    options = keyword(call, "options")
    if options is None:
        return None if is_open(call) else False
    made = script.held(options) if isinstance(options, (ast.Name, ast.Attribute)) else options
    if not isinstance(made, ast.Call) or is_open(made) or script.resolve(made.func) != f"{STATE}.StateDictOptions":
        return None
    whole = given(made, 0, "full_state_dict")
    if whole is None:
        return False
    return bool(whole.value) if isinstance(whole, ast.Constant) else None
