"""Whether a program starts several ranks itself, or needs a launcher that has started it."""

from __future__ import annotations

import ast
import re

from ddpdoctor.source.arguments import given
from ddpdoctor.source.script import Script
from ddpdoctor.source.text.syntax import NO_PYTHON
from ddpdoctor.source.values.sites import SPAWN, call_sites

OWN_RANKS = re.compile(r"[\"'](?:RANK|LOCAL_RANK|SLURM_PROCID|OMPI_COMM_WORLD_RANK|WORLD_SIZE)[\"']")


def starts_ranks(text: str) -> bool:
    """Whether a program starts several ranks by mp.spawn in every run, and never asks which rank it is itself."""
    if "spawn" not in text or OWN_RANKS.search(text):
        return False
    script = _read(text)
    if script is None:
        return False
    for call in script.calls(*SPAWN):
        count = given(call, 2, "nprocs")
        is_one = count is None or (isinstance(count, ast.Constant) and count.value == 1)
        if not is_one and _always(script, call, 4):
            return True
    return False


OF_LAUNCHERS = {"RANK", "LOCAL_RANK", "WORLD_SIZE"}
OTHERWISE = re.compile(
    r"spawn|Process\(|Popen|subprocess|fork|execv|setdefault|putenv|dotenv|environ\.update|except\b|suppress|SLURM|OMPI|PMI_"
    r"|in os\.environ|environ\[[^\]\n]*\]\s*=(?!=)"
)
"""What says that a program sets the variables itself, asks for them first, or starts others that have them."""


def needed(text: str) -> str:
    """Return the variable of a launcher that each run of a program fails without; empty where there is none."""
    script = None if OTHERWISE.search(text) or "environ[" not in text else _read(text)
    if script is None or script.frameworks or not script.joins:
        return ""
    for node in script.nodes(ast.Subscript):
        match node:
            case ast.Subscript(value=value, slice=ast.Constant(value=str(name))) if name in OF_LAUNCHERS:
                if script.resolve(value) == "os.environ" and _always(script, node, 4):
                    return name
    return ""


def _read(text: str) -> Script | None:
    try:
        return Script("", text, ast.parse(text))
    except NO_PYTHON:
        return None


def _always(script: Script, node: ast.AST, depth: int) -> bool:
    """Whether each run of a program comes to a node."""
    if any(ast.unparse(each.test) != "__name__ == '__main__'" for each in script.guards(node)):
        return False
    function = script.function(node)
    callers = call_sites(script.tree, function) if function is not None else None
    return function is None or (depth > 0 and any(_always(script, each, depth - 1) for each in callers or ()))
