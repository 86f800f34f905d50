"""Loaders that a source leaves whole: each rank that goes through one goes through the whole data set."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ddpdoctor.check import given

from .._scripts.evaluation import is_evaluation
from .._scripts.source import uses

if TYPE_CHECKING:
    from ddpdoctor.check import Script

KNOWN = {"enumerate", "len", "tqdm.tqdm", "tqdm.auto.tqdm", "range", "print", "iter", "math.ceil"}


def is_sharded(loader: ast.Call) -> bool:
    """Whether a loader is given a sampler, or what cannot be seen."""
    return any(word.arg in {"sampler", "batch_sampler", None} for word in loader.keywords)


SEEDS = re.compile(r"seed\w*\(|Generator\(|default_rng\(|RandomState\(", re.IGNORECASE)
DRAWS = re.compile(r"(?:torch|numpy\.random)\.(?:rand\w*|normal\w*|uniform|standard_normal)")


def is_drawn_by_each(script: Script, loader: ast.Call) -> bool:
    """Whether a loader's data are numbers that the process draws when it makes them, where the file seeds nothing.

    Each rank goes through the whole of what is its own then.
    """
    data = given(loader, 0, "dataset")
    made = script.value(data) if data is not None else None
    if not isinstance(made, ast.Call) or script.resolve(made.func) != "torch.utils.data.TensorDataset":
        return False
    drawn = [script.value(each) for each in made.args]
    calls = [each for each in drawn if isinstance(each, ast.Call)]
    return not SEEDS.search(script.text) and any(DRAWS.fullmatch(script.resolve(each.func) or "") for each in calls)


def trains(script: Script, loop: ast.For) -> bool:
    """Whether a loop learns from its batches."""
    names = {node.attr for node in script.inside(*loop.body) if isinstance(node, ast.Attribute)}
    return "backward" in names and not is_evaluation(script, "", loop)


def escapes(script: Script, name: str, loader: ast.Call) -> bool:
    """Whether a loader is handed to something that is not known, which can prepare it, or split it."""
    for use in uses(script, name, loader):
        parent = script.tree.parents.get(use)
        if isinstance(parent, (ast.Tuple, ast.List, ast.Return, ast.Dict, ast.Assign, ast.keyword)):
            return True
        if isinstance(parent, ast.Call) and parent.func is not use and script.resolve(parent.func) not in KNOWN:
            return True
    return False
