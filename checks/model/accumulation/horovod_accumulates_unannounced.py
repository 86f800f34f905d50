"""Gradients are accumulated over several backwards, and Horovod was told of one.

## What happens

Horovod begins to average a gradient as soon as backward has it. `backward_passes_per_step` tells it to wait for
several. Without it the second backward before a step finds gradients that are on their way: "Gradients were computed
more than backward_passes_per_step times before call to step()".

## How to be sure

In a source (`ddpdoctor lint`): the optimizer steps behind a test of the batch's number, backward stands before that
test, and the DistributedOptimizer is not given `backward_passes_per_step`.

## How to mend it

    optimizer = hvd.DistributedOptimizer(optimizer, ..., backward_passes_per_step=4)

## Versions and sources

Seen with Horovod 0.28.1. Sources: horovod/torch/optimizer.py, `_make_hook`; Horovod documentation, "Horovod with
PyTorch".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, given, is_open, lint, log_pattern

from ..._frameworks.horovod import OPTIMIZER, steps_of

if TYPE_CHECKING:
    from ddpdoctor.check import Edit, Script

AILMENT = Ailment("DDP539", Severity.ERROR)
PLACE = 3  # of backward_passes_per_step among the arguments


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a step that not each backward is followed by."""
    for call in script.calls(OPTIMIZER):
        if (
            is_open(call)
            or "set_backward_passes_per_step" in script.text
            or given(call, PLACE, "backward_passes_per_step") is not None
        ):
            continue
        for step in steps_of(script, call):
            number = _every(script, step)
            if number is None:
                continue
            yield Finding(
                f"{ast.unparse(number)} backwards come before each step, and Horovod expects one",
                (script.seen(step), script.seen(call, f"backward_passes_per_step={ast.unparse(number)}")),
                Fix(
                    "tell Horovod how many backwards come before a step",
                    diff=_diff(script, call, number),
                    edits=_edits(script, call, number),
                ),
                script.place(call),
            )
            break


def _diff(script: Script, call: ast.Call, number: ast.expr) -> str:
    code = script.code(call)
    return f"-{code}\n+{code[:-1]}, backward_passes_per_step={ast.unparse(number)})"


def _edits(script: Script, call: ast.Call, number: ast.expr) -> tuple[Edit, ...]:
    """Return the edit, where the number is known before the optimizer is made: in figures, or as an option."""
    is_known = isinstance(number, ast.Constant) or (
        isinstance(number, ast.Attribute) and script.is_parsed(number.value)
    )
    return (script.keyword_added(call, f"backward_passes_per_step={ast.unparse(number)}"),) if is_known else ()


def _every(script: Script, step: ast.Call) -> ast.expr | None:
    """Return after how many backwards a step comes: ``if (i + 1) % n == 0`` in a loop, with a backward before it."""
    for parent in script.tree.above(step):
        if isinstance(parent, (ast.For, ast.While)):
            return None
        if isinstance(parent, ast.If) and (number := _divisor(script, parent.test)) is not None:
            loop = next((each for each in script.tree.above(parent) if isinstance(each, (ast.For, ast.While))), None)
            return number if loop is not None and _backward(script, loop, parent) else None
    return None


def _divisor(script: Script, test: ast.expr) -> ast.expr | None:
    match test:
        case ast.Compare(left=ast.BinOp(op=ast.Mod(), right=number), ops=[ast.Eq()]):
            value = script.value(number)
            return None if isinstance(value, ast.Constant) and value.value == 1 else number
    return None


def _backward(script: Script, loop: ast.For | ast.While, test: ast.If) -> bool:
    within = {id(node) for node in ast.walk(test)}
    calls = [node for node in script.inside(*loop.body) if isinstance(node, ast.Call) and id(node) not in within]
    return any(isinstance(each.func, ast.Attribute) and each.func.attr == "backward" for each in calls)


@log_pattern(r"Gradients were computed more than backward_passes_per_step times before call to step\(\)")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read Horovod's assertion."""
    yield Finding(
        "more backwards come before a step than Horovod was told of",
        (record.proof(match, "as many backwards as backward_passes_per_step says"),),
        Fix(
            "tell Horovod how many backwards come before a step",
            diff="-hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())\n"
            "+hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), "
            "backward_passes_per_step=accumulation_steps)",
        ),
        record.place,
    )
