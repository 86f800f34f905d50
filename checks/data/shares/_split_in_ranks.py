"""Which functions split a data set at random, and whether each rank comes to a call of one."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ..._source import SAMPLER

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

SPLITTERS = {
    "torch.utils.data.random_split": ("generator", "torch.Generator().manual_seed(0)"),
    "sklearn.model_selection.train_test_split": ("random_state", "0"),
}
SPLITTERS_BY_NAME = {name.rpartition(".")[2]: seed for name, seed in SPLITTERS.items()}
SPAWNS = ("torch.multiprocessing.spawn",)


def is_launched(script: Script, project: Around, call: ast.Call) -> bool:
    """Whether a launch line starts the script as several processes, which all come to a call."""
    name = re.escape(script.path.replace("\\", "/").rpartition("/")[2])
    launchers = r"torchrun|deepspeed|accelerate launch|torch\.distributed\.(?:run|launch)"
    return script.all_ranks_reach(call) and project.in_launches(rf"(?:{launchers})\b(?:[^\n]|\\\n){{0,400}}?\b{name}\b")


def is_shared_out(script: Script, project: Around) -> bool:
    """Whether a DistributedSampler of this file, or of one that it imports, shares data out."""
    if script.calls(SAMPLER):
        return True
    files = project.trees("DistributedSampler") if script.calls(*SPLITTERS) else ()
    return any(script.names_in(tree, call.func) == SAMPLER for _, tree in files for call in tree.of(ast.Call))


def is_on_each_rank(script: Script, call: ast.Call) -> bool:
    """Whether all ranks come to a call; those that are spawned run the top of the file once more."""
    if not script.joins and not script.calls("horovod.torch.init"):
        return False
    if script.function(call) is None and script.calls(*SPAWNS):
        return (
            script.cells is None
            and not script.guards(call)
            and script.tree.class_of(call) is None
            and not _parents_alone(script, call)
        )
    return script.all_ranks_reach(call)


def _parents_alone(script: Script, call: ast.Call) -> bool:
    """Whether what is split goes to the ranks as an argument of spawn."""
    statement = script.tree.statement(call)
    names = {each.id for each in ast.walk(statement) if isinstance(each, ast.Name)} if statement else set()
    passed = [node for start in script.calls(*SPAWNS) for node in ast.walk(start) if isinstance(node, ast.Name)]
    return any(each.id in names for each in passed)
