"""Whether a program starts several ranks itself."""

from __future__ import annotations

import ast
import re

from ddpdoctor.source.arguments import given
from ddpdoctor.source.reach.sites import SPAWN, call_sites
from ddpdoctor.source.script import Script

OWN_RANKS = re.compile(r"[\"'](?:RANK|LOCAL_RANK|SLURM_PROCID|OMPI_COMM_WORLD_RANK|WORLD_SIZE)[\"']")


def starts_ranks(text: str) -> bool:
    """Whether a program starts several ranks by mp.spawn in every run, and never asks which rank it is itself."""
    if "spawn" not in text or OWN_RANKS.search(text):
        return False
    try:
        script = Script("", text, ast.parse(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    for call in script.calls(*SPAWN):
        count = given(call, 2, "nprocs")
        is_one = count is None or (isinstance(count, ast.Constant) and count.value == 1)
        if not is_one and _always(script, call, 4):
            return True
    return False


def _always(script: Script, node: ast.AST, depth: int) -> bool:
    """Whether each run of a program comes to a node."""
    if any(ast.unparse(each.test) != "__name__ == '__main__'" for each in script.guards(node)):
        return False
    function = script.function(node)
    callers = call_sites(script.tree, function) if function is not None else None
    return function is None or (depth > 0 and any(_always(script, each, depth - 1) for each in callers or ()))
