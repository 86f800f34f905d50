"""Whole numbers that are drawn for each sample of a batch, and choose none: negatives of a ranking, say."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ddpdoctor.check import last_name, tree_of

from ..._ledgers.flows import RANK
from ._in_forward import OF_SAMPLES

DRAWS = {"randint", "integers", "randrange"}
PICKS = {"index_select", "take", "gather", "Subset", "batch_sampler", "getitem"}


def drawn_for_samples(call: ast.Call, file: str) -> bool:
    """Whether a statement draws as many whole numbers as there are samples, and none of them says which samples.

    It speaks of no rank, and what it draws is nowhere an index, so that no rank can take its part by it.
    """
    tree = tree_of(file)
    above = [each for each in tree.above(call) if isinstance(each, (ast.Assign, ast.FunctionDef))]
    if last_name(call.func) not in DRAWS or not above or not isinstance(above[0], ast.Assign):
        return False
    statement, text = above[0], ast.unparse(above[0].value)
    if len(statement.targets) != 1 or not isinstance(statement.targets[0], ast.Name):
        return False
    sized = " ".join(map(ast.unparse, call.args[1:])) if last_name(call.func) != "randrange" else text
    if RANK.search(text) or not OF_SAMPLES.search(sized):
        return False
    name, function = statement.targets[0].id, tree.function(call)
    used = [each for each in tree.of(ast.Name) if each.id == name and tree.function(each) is function]
    return not any(_chooses(each, tree.above(each)) for each in used)


def _chooses(name: ast.Name, above: Iterable[ast.AST]) -> bool:
    """Whether a name stands within a subscript, or is handed to what takes samples by their numbers."""
    for each in above:
        if isinstance(each, ast.Subscript) and any(part is name for part in ast.walk(each.slice)):
            return True
        if isinstance(each, ast.Call) and last_name(each.func) in PICKS:
            return True
        if isinstance(each, ast.stmt):
            return False
    return False
