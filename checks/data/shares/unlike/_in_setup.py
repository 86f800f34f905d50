"""Splits of data in the modules of Lightning, which each process makes for itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import is_open, keyword

from ...._frameworks.lightning import HOMES, SAMPLER, TRAINERS, has_ranks
from ._split_in_ranks import SPLITTERS

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script, Tree

MODULES = {f"{home}.{name}" for home in HOMES for name in ("LightningModule", "LightningDataModule")}
BY_EACH = {"__init__", "setup", "train_dataloader", "val_dataloader"}
"""Methods that each process calls; ``prepare_data`` is called by one."""
FORKED = ("fork", "notebook", "spawn")
"""Strategies whose processes can go on with the random state of their parent, or take its data."""


def splits_in_setup(script: Script, project: Around) -> Iterator[ast.Call]:
    """Yield the splits that each process of a Trainer makes, without a seed of their own."""
    calls = [each for each in script.calls(*SPLITTERS) if _is_by_each(script, each)]
    if calls and script.cells is None and any(_parts_processes(*each) for each in _trainers(script, project)):
        yield from calls


def _is_by_each(script: Script, call: ast.Call) -> bool:
    word, _ = SPLITTERS[script.resolve(call.func) or ""]
    function, owner = script.function(call), script.tree.class_of(call)
    if not isinstance(function, ast.FunctionDef) or function.name not in BY_EACH or owner is None:
        return False
    if is_open(call) or keyword(call, word) is not None or ast.unparse(call).endswith("shuffle=False)"):
        return False
    is_module = any(script.resolve(base) in MODULES for base in owner.bases)
    return is_module and not any(each.is_rankish(script.tree) for each in script.guards(call))


def _trainers(script: Script, project: Around) -> Iterator[tuple[Tree, ast.Call]]:
    yield from ((script.tree, each) for each in script.calls(*TRAINERS))
    for _, tree in project.trees(r"\bTrainer\("):
        yield from ((tree, each) for each in tree.of(ast.Call) if script.names_in(tree, each.func) in TRAINERS)


def _parts_processes(tree: Tree, trainer: ast.Call) -> bool:
    """Whether a Trainer starts the script once for each GPU, and puts its samplers in."""
    strategy = keyword(trainer, "strategy")
    if strategy is not None and any(word in ast.unparse(strategy) for word in FORKED):
        return False
    return has_ranks(tree, trainer) and all(keyword(trainer, name) is None for name in SAMPLER)
