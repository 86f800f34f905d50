"""Metrics of torchmetrics, which gather what all ranks have counted where they are computed."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.check import is_open, last_name

if TYPE_CHECKING:
    from ddpdoctor.check import Script

LIGHTNINGS = frozenset({"lightning", "pytorch_lightning"})
SAME = frozenset({"to", "cuda", "cpu", "clone"})
ALONE = frozenset({"sync_on_compute", "process_group", "dist_sync_fn", "distributed_available_fn"})
"""What a metric is told that gathers nothing, or otherwise."""


def computes_over_ranks(script: Script, call: ast.Call, owner: ast.expr) -> bool:
    """Whether ``metric.compute()`` is of torchmetrics, there is a group, and nothing has gathered before.

    What was computed once is kept until the next update: nothing is gathered then.
    """
    if not _is_metric(script, owner):
        return False
    if _is_of_lightning(script, call):
        if _is_logged(script, owner):
            return False
    elif not (script.joins or script.joins_elsewhere(call) or script.ranks_of_others_reach(call)):
        return False
    for node in script.nodes(ast.Call):
        match node.func:
            case ast.Attribute(value=other, attr="compute" | "sync" | "forward") if node is not call:
                if ast.dump(other) == ast.dump(owner) and script.one_rank_guard(node) is None:
                    return False
    return True


def _is_of_lightning(script: Script, call: ast.Call) -> bool:
    """Whether a call stands in a module or a callback of Lightning's, which makes the group."""
    bases = [script.resolve(base) or "" for base in getattr(script.tree.class_of(call), "bases", ())]
    return any(base.partition(".")[0] in LIGHTNINGS for base in bases)


def _is_logged(script: Script, owner: ast.expr) -> bool:
    """Whether a metric is handed to ``log``: Lightning computes it on all ranks, before some of the hooks."""
    code = ast.dump(owner)
    logs = [each for each in script.nodes(ast.Call) if last_name(each.func) in {"log", "log_dict"}]
    return any(ast.dump(part) == code for each in logs for part in ast.walk(each))


def _is_metric(script: Script, node: ast.expr) -> bool:
    """Whether an expression holds a metric of torchmetrics that gathers over all ranks."""
    held = script.held(node) if isinstance(node, (ast.Name, ast.Attribute)) else node
    while isinstance(held, ast.Call) and isinstance(held.func, ast.Attribute) and held.func.attr in SAME:
        held = held.func.value
    if not isinstance(held, ast.Call):
        return False
    root, _, name = (script.resolve(held.func) or "").partition(".")
    made = [each for each in ast.walk(held) if isinstance(each, ast.Call)]
    told = {word.arg for each in made for word in each.keywords}
    return (
        root == "torchmetrics"
        and name.rpartition(".")[2][:1].isupper()
        and not (told & ALONE or any(map(is_open, made)))
    )
