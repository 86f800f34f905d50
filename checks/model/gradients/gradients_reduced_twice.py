"""Gradients that DDP has averaged are reduced once more by hand.

## What happens

In backward DDP replaces each gradient by the mean over the ranks. An `all_reduce` over `parameter.grad` after it, left
from a script that did without DDP, adds N equal gradients: without a division they are N times too large, which is a
learning rate N times as high for SGD, and a clipping that bites. With a division the result is right and the
communication is made twice: a note.

## How to be sure

ddpdoctor compares the norm of the gradients right after backward, before the reduction by hand, and
right before `optimizer.step()`, in the first steps.

In source (`ddpdoctor lint`), a loop over the parameters of a wrapped model that reduces their gradients.

## How to mend it

Remove the reduction.

Silent within no_sync, where averaging by hand is the algorithm, and where anything else changes the norm (clipping,
unscaling): the factor is then not that of the ranks.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "Distributed Data Parallel",
internal design.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    ManualReduction,
    Severity,
    Training,
    Wrapped,
    lint,
    place,
    watch,
)

from .._words import counted, listed

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script, Wrap

AILMENT = Ailment("DDP567", Severity.ERROR)
TOLERANCE = 0.01
REMOVE = Fix(
    "remove the reduction: DDP averages in backward",
    diff=" loss.backward()\n-for parameter in model.parameters():\n-    dist.all_reduce(parameter.grad)\n"
    " optimizer.step()",
)


@watch(ManualReduction)
def while_training(event: ManualReduction, training: Training) -> Iterator[Finding]:
    """Compare the gradients after the reduction with what backward left."""
    wrapped = training.of(Wrapped, pid=event.pid, model=event.model)
    ranks = len(wrapped[-1].group) if wrapped else 0
    if ranks < 2:  # noqa: PLR2004 - one rank has nothing to reduce
        return
    which = f"{counted(event.count, 'gradient')}: {listed(event.names, 4)}"
    given = Evidence(
        f"{event.operation} of {which}, which DDP had averaged", "no reduction by hand", f"rank {event.rank}"
    )
    grown = Evidence(
        f"{event.after:.4g} times the norm that backward left, right before the step", "1 times", f"rank {event.rank}"
    )
    if math.isclose(event.after, ranks, rel_tol=TOLERANCE) and math.isclose(event.before, 1, rel_tol=TOLERANCE):
        yield Finding(
            f"gradients are summed over {ranks} ranks after DDP has averaged them: they are {ranks} times too large",
            (given, grown),
            REMOVE,
            place(event.site),
        )
    elif math.isclose(event.after, 1, rel_tol=TOLERANCE):
        yield Finding(
            "gradients are averaged by hand after DDP has averaged them: the same result, communicated twice",
            (given, grown),
            REMOVE,
            place(event.site),
            severity=Severity.NOTE,
        )


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a loop over the parameters of a wrapped model that reduces their gradients."""
    if script.frameworks or project.does(BY_HAND):
        return
    for loop in script.nodes(ast.For):
        wrap = _wrap_of(script, loop.iter)
        call = next((each for each in script.calls(REDUCE) if _reduces_in(script, each, loop)), None)
        if wrap is None or call is None or not wrap.sure or wrap.kind != "DistributedDataParallel":
            continue
        is_mean = "AVG" in script.code(call) or MEAN.search(script.text) is not None
        yield Finding(
            "gradients are averaged by hand after DDP has averaged them: the same result, communicated twice"
            if is_mean
            else "gradients are summed over the ranks after DDP has averaged them: they are as many times too large",
            (script.seen(call, "no reduction by hand"), script.seen(wrap.call)),
            REMOVE,
            script.place(call),
            severity=Severity.NOTE if is_mean else None,
        )


REDUCE = "torch.distributed.all_reduce"
BY_HAND = r"no_sync|require_backward_grad_sync|comm_hook|delay_allreduce|\.Join\("
"""What says that DDP leaves the averaging to others, at least at times."""
MEAN = re.compile(r"(?:/=?|div_?\()\s*(?:float\()?[\w.]*(?:world|size|gpus|nprocs|replicas|num_proc)|ReduceOp\.AVG")
"""What divides by the number of ranks."""


def _wrap_of(script: Script, iterated: ast.expr) -> Wrap | None:
    """Return how the model is wrapped whose parameters are gone through."""
    match iterated:
        case ast.Call(func=ast.Attribute(value=model, attr="parameters" | "named_parameters"), args=[], keywords=[]):
            if isinstance(model, ast.Attribute) and model.attr == "module":
                model = model.value
            return script.wrap(model)
    return None


def _reduces_in(script: Script, call: ast.Call, loop: ast.For) -> bool:
    """Whether a loop hands the gradient of what it goes through to a call."""
    names = {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)}
    given = [each for each in ast.walk(call) if isinstance(each, ast.Attribute) and each.attr == "grad"]
    of_loop = [each for each in given if isinstance(each.value, ast.Name) and each.value.id in names]
    return bool(of_loop) and loop in script.tree.above(call)
