"""Which functions split a data set at random, and whether each rank comes to a call of one."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.check import Evidence, Started, is_open, keyword, last_name, tree_of

from ...._scripts.own_files import own_files
from ...._scripts.source import SAMPLER

if TYPE_CHECKING:
    from ddpdoctor.check import Around, OrderSeen, Script, Training

SPLITTERS = {
    "torch.utils.data.random_split": ("generator", "torch.Generator().manual_seed(0)"),
    "sklearn.model_selection.train_test_split": ("random_state", "0"),
}
SPLITTERS_BY_NAME = {name.rpartition(".")[2]: seed for name, seed in SPLITTERS.items()}
SPAWNS = ("torch.multiprocessing.spawn",)


def is_launched(script: Script, project: Around, call: ast.Call) -> bool:
    """Whether a launch line starts the script as several processes, which all come to a call."""
    name = re.escape(script.name)
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


def splits(event: OrderSeen, training: Training) -> list[Evidence]:
    """Return the lines of the program, and of the file of the loop, that split data without a seed."""
    programs = [each.program.partition(" ")[0] for each in training.of(Started)]
    sites = [*programs, *([event.site.file] if event.site else [])]
    files = dict.fromkeys(each for file in sites for each in own_files(str(Path(file).absolute())))
    found = [
        Evidence(ast.unparse(call), f"{word}={value}", f"{file}:{call.lineno}")
        for file in files
        for call in tree_of(file).of(ast.Call)
        for word, value in [SPLITTERS_BY_NAME.get(last_name(call.func), ("", ""))]
        if word and keyword(call, word) is None and not is_open(call)
    ]
    drawn_here = [
        Evidence(said, said.replace(drawn, SEEDED_DRAWS[drawn], 1), f"{file}:{call.lineno}")
        for file in files
        for call in tree_of(file).of(ast.Call)
        if (drawn := ast.unparse(call.func)) in SEEDED_DRAWS
        for said in [ast.unparse(call)]
    ]
    return found or (drawn_here if len(drawn_here) == 1 else [])


SEEDED_DRAWS = {
    "np.random.permutation": "np.random.default_rng(0).permutation",
    "numpy.random.permutation": "numpy.random.default_rng(0).permutation",
    "np.random.shuffle": "np.random.default_rng(0).shuffle",
    "numpy.random.shuffle": "numpy.random.default_rng(0).shuffle",
    "random.shuffle": "random.Random(0).shuffle",
    "random.sample": "random.Random(0).sample",
}
"""What draws an order from the generator of the process, and the same with a seed that all ranks have."""
