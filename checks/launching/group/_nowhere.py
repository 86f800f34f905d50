"""Processes that a script spawns, and in which nothing makes a process group."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import DDP, given

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script, Tree

SPAWN = "torch.multiprocessing.spawn"
MAKES = re.compile(
    r"init_process_group|start_processes|device_mesh|(?:init|set_?up|prepare|launch)\w*_(?:dist|ddp|mp)\w*"
    r"|(?:dist|ddp)\w*_(?:init|set_?up|prepare|launch)\w*|\bidist\b",
    re.IGNORECASE,
)
"""Names of what makes a process group, or can."""


def spawned_without_group(script: Script, project: Around) -> Iterator[tuple[ast.Call, ast.Call]]:
    """Yield the wrapping of models in functions that ``mp.spawn`` starts, and that call."""
    found = [(call, spawn) for call in script.calls(DDP) if (spawn := _spawned(script, call)) is not None]
    if found and not _makes(script.tree) and not any(_makes(tree) for _, tree in project.trees(f"(?i){MAKES.pattern}")):
        yield from found


def _spawned(script: Script, call: ast.Call) -> ast.Call | None:
    """Return the ``mp.spawn`` that starts the function in which a call stands."""
    function = script.function(call)
    if function is None or any(isinstance(each, ast.Try) for each in script.tree.above(call)):
        return None
    for spawn in script.calls(SPAWN):
        target = given(spawn, 0, "fn")
        if target is not None and script.names_function(target) is function:
            return spawn
    return None


def _makes(tree: Tree) -> bool:
    """Whether a file names, beside its comments, what makes a group."""
    named = [
        *(each.id for each in tree.of(ast.Name)),
        *(each.attr for each in tree.of(ast.Attribute)),
        *(each.name for each in tree.of(ast.alias)),
    ]
    return any(MAKES.search(each) for each in named)
