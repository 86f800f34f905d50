"""Loaders that a source leaves whole: each rank that goes through one goes through the whole data set."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .._scripts.evaluation import is_evaluation
from .._scripts.source import uses

if TYPE_CHECKING:
    from ddpdoctor.check import Script

KNOWN = {"enumerate", "len", "tqdm.tqdm", "tqdm.auto.tqdm", "range", "print", "iter", "math.ceil"}


def is_sharded(loader: ast.Call) -> bool:
    """Whether a loader is given a sampler, or what cannot be seen."""
    return any(word.arg in {"sampler", "batch_sampler", None} for word in loader.keywords)


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
