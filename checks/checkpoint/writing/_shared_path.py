"""Paths in a source that are the same on all ranks."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.check import ACCELERATOR, keyword

if TYPE_CHECKING:
    from ddpdoctor.check import Script


def depends_on_rank(script: Script, path: ast.expr) -> bool:
    """Whether a path can be another on each rank, or is no path: taken to be so where a name in it says so.

    Only literals, options and variables that hold them are known; a call of unknown code can give each rank its own.
    """
    return script.can_differ(path)


def is_reached(script: Script, call: ast.Call, *, joins: bool) -> bool:
    """Whether all ranks of a training come to a line: of this file, or of one whose helper makes the group.

    Not where each of them is on a host of its own: what they write is not one file then.
    """
    if script.has_one_rank_a_host:
        return False
    if joins:
        return script.all_ranks_reach(call)
    return script.ranks_of_others_reach(call) or (script.all_ranks_reach(call) and script.joins_elsewhere(call))


def on_one_rank(script: Script) -> str:
    """Return the test that one rank alone passes, in the words of the file's framework."""
    if (accelerator := _accelerator(script)) is not None:
        return f"if {accelerator}.is_main_process:"
    return f"if {'hvd.rank()' if 'horovod' in script.frameworks else 'torch.distributed.get_rank()'} == 0:"


def _accelerator(script: Script) -> str | None:
    """Return the name under which a file that joins no group of its own holds its Accelerator."""
    made = script.calls(ACCELERATOR)
    if script.joins or not made:
        return None
    statement = script.tree.statement(made[0])
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return script.code(targets[0]) if targets else "accelerator"


def diff_guarded(script: Script, call: ast.Call) -> str:
    """Return the lines that let one rank alone come to a call, and the others wait."""
    code, accelerator = script.code(call), _accelerator(script)
    wait = f"{accelerator}.wait_for_everyone()" if accelerator else "torch.distributed.barrier()"
    return f"-{code}\n+{on_one_rank(script)}\n+    {code}\n+{wait}"


def is_made_by_another(script: Script, path: ast.expr) -> bool:
    """Whether a path is handed to a class of the project that makes it when an object is made, wherever it is there.

    Whoever looks for it afterwards finds it.
    """
    code = script.code(path)
    for call in script.nodes(ast.Call):
        named = script.resolve(call.func) or ""
        if "." not in named or script.tree.abroad is None or code not in map(script.code, call.args):
            continue
        found = script.tree.abroad(named)
        if found is None or not isinstance(found[1], ast.ClassDef):
            continue
        inner = [each for each in ast.walk(found[1]) if isinstance(each, ast.Call)]
        if any(script.names_in(found[0], each.func) == "os.makedirs" and keyword(each, "exist_ok") for each in inner):
            return True
    return False
