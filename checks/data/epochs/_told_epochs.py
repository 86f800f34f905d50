"""The number that a source tells a sampler as the epoch."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Finding,
    Fix,
    Severity,
    dotted,
    last_name,
)

from ..._scripts.evaluation import EVALUATION
from ..._scripts.source import SAMPLER

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script


def is_a_sampler(receiver: ast.expr) -> bool:
    name = (dotted(receiver) or "").rpartition(".")[2]
    return name.endswith("sampler") and not EVALUATION.search(dotted(receiver) or "")


def epoch_of(script: Script, call: ast.Call) -> str:
    """Return the name that the number of the epoch has at a call: of the loop around it, or of the one that calls it.

    Empty where there is none, or where another call of set_epoch follows in the same function.
    """
    function, owner = script.function(call), script.tree.class_of(call)
    if not isinstance(function, ast.FunctionDef) or owner is None:
        return ""
    later = [
        each
        for each in ast.walk(function)
        if isinstance(each, ast.Call) and last_name(each.func) == "set_epoch" and each.lineno > call.lineno
    ]
    given = [each.arg for each in function.args.args[1:]]
    loops = [each for each in ast.walk(owner) if isinstance(each, ast.For) and "range" in ast.unparse(each.iter)]
    for loop in loops if not later else ():
        if any(each is loop for each in script.tree.above(call)):
            return ast.unparse(loop.target) if isinstance(loop.target, ast.Name) else ""
        for each in ast.walk(loop):
            handed = isinstance(each, ast.Call) and ast.unparse(each.func) == f"self.{function.name}" and each.args
            if handed and ast.unparse(handed[0]) == ast.unparse(loop.target) and given:
                return given[0]
    return ""


def given_as(script: Script, node: ast.expr) -> ast.expr:
    """Return what a local variable is given, where that is one thing; of anything else, the expression itself."""
    bindings = script.tree.lookup(node.id, node) if isinstance(node, ast.Name) else []
    held = bindings[0].value if len(bindings) == 1 else None
    return held if held is not None else node


def is_of_training(script: Script, project: Around, receiver: ast.expr, loop: ast.For) -> bool:
    """Whether a receiver is the shuffling sampler of a loader from which the loop learns, made in another file."""
    name = dotted(receiver) or ""
    if not name.endswith(".sampler") or EVALUATION.search(name) or script.calls(SAMPLER) or script.frameworks:
        return False
    return script.learns(loop) and project.says("DistributedSampler") and not project.says(TOLD_TO_SHUFFLE)


TOLD_TO_SHUFFLE = r"DistributedSampler\([^)]*shuffle|class\s+\w*DistributedSampler"
"""What leaves open whether a sampler shuffles, or is another one than torch's."""


def in_loop(script: Script, call: ast.Call, loop: ast.For, epoch: str) -> Finding:
    receiver = script.code(call.func)
    said = f"{receiver} is called without the epoch, which is a TypeError"
    if call.args:
        said = f"{receiver} is given {script.code(call.args[0])} in each epoch, so that all have the same order"
    return Finding(
        said,
        (script.seen(call, f"{receiver}({epoch})"), script.seen(loop)),
        Fix("pass the number of the epoch", edits=(script.replaced(call, f"{receiver}({epoch})"),)),
        script.place(call),
        severity=None if call.args else Severity.ERROR,
    )
