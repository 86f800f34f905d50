"""What each worker or process of a framework is to call: reports and metrics."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.check import FSDP, keyword

if TYPE_CHECKING:
    from ddpdoctor.check import Script


REPORTS = ("ray.train.report", "ray.train.collective.barrier", "ray.train.collective.broadcast_from_rank_zero")
EVALUATORS = ("ignite.engine.create_supervised_evaluator", "ignite.engine.engine.create_supervised_evaluator")
LOCAL = {"RunningAverage", "GpuInfo", "Frequency"}
"""Metrics of Ignite of which not all reduce over the ranks."""


def of_workers(script: Script, function: ast.Attribute) -> str:
    """Return what a method is of Ray Train, Ignite or FSDP; empty where it is none that all ranks have to call."""
    owner = function.value
    if script.resolve(function) in REPORTS:
        return "for all workers of Ray Train, who meet in it"
    if function.attr == "attach" and _is_metric(script, owner):
        return "what makes a metric of Ignite compute, by a collective"
    if function.attr == "run" and _evaluates(script, owner):
        return "what has metrics of Ignite compute, by collectives"
    if function.attr == "state_dict" and script.made_by(owner, FSDP):
        return "a collective of FullyShardedDataParallel"
    return ""


def _is_metric(script: Script, node: ast.expr) -> bool:
    """Whether an expression holds a metric of Ignite, that reduces over the ranks when it is computed."""
    held = script.held(node) if isinstance(node, (ast.Name, ast.Attribute)) else node
    path = (script.resolve(held.func) or "") if isinstance(held, ast.Call) else ""
    return path.startswith("ignite.metrics.") and path.rpartition(".")[2] not in LOCAL


def _evaluates(script: Script, owner: ast.expr) -> bool:
    """Whether an expression holds an evaluator of Ignite's that has metrics."""
    if isinstance(owner, ast.Name) and any(_is_attached(script, each, owner.id) for each in script.nodes(ast.Call)):
        return True
    made = script.value(owner)
    is_one = isinstance(made, ast.Call) and script.resolve(made.func) in EVALUATORS
    metrics = keyword(made, "metrics") if isinstance(made, ast.Call) and is_one else None
    held = script.value(metrics) if metrics is not None else None
    return isinstance(held, ast.Dict) and any(_is_metric(script, each) for each in held.values)


def _is_attached(script: Script, call: ast.Call, name: str) -> bool:
    """Whether a metric is attached to what a variable holds, on all ranks."""
    match call:
        case ast.Call(func=ast.Attribute(value=metric, attr="attach"), args=[ast.Name(id=engine), *_]) if (
            engine == name
        ):
            return _is_metric(script, metric) and not script.guards(call)
    return False
