"""Weights that a source gives memory, and no values."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ddpdoctor.check import dotted, last_name

if TYPE_CHECKING:
    from ddpdoctor.check import Tree

VALUES = re.compile(
    r"init|load|reset|restore|copy_|normal_|uniform_|fill_|zeros_|ones_|constant_|orthogonal_|apply|broadcast|sync_|"
    r"from_pretrained|materialize|set_\w*state",
    re.IGNORECASE,
)
"""In the name of a function: it can give weights their values."""
OTHERWISE = frozenset({"__init__", "init_process_group", "init_device_mesh", "is_initialized", "DataLoader"})
"""Functions with such a name that give no weights."""
TAKE = frozenset(
    "FSDP FullyShardedDataParallel fully_shard DDP DistributedDataParallel len print compile isinstance id type".split()
)
"""What can be handed the model without giving its weights values."""


def emptied(tree: Tree) -> ast.Call | None:
    """Return the call of ``to_empty`` of a file that trains, and that gives weights no values by any name known."""
    calls = tree.of(ast.Call)
    names = [last_name(each.func) for each in calls]
    found = [each for each in calls if isinstance(each.func, ast.Attribute) and each.func.attr == "to_empty"]
    if len(found) != 1 or "backward" not in names:
        return None
    if any(VALUES.search(name) for name in names if name not in OTHERWISE):
        return None
    if any(word.arg in {"param_init_fn", "sync_module_states"} for each in calls for word in each.keywords):
        return None
    model = dotted(found[0].func.value) if isinstance(found[0].func, ast.Attribute) else None
    if model is None or any(model in map(dotted, each.args) and last_name(each.func) not in TAKE for each in calls):
        return None
    return found[0]
