"""Gradients that DDP has averaged are reduced once more by hand.

## What happens

In backward DDP replaces each gradient by the mean over the ranks. An `all_reduce` over `parameter.grad` after it, left
from a script that did without DDP, adds N equal gradients: without a division they are N times too large, which is a
learning rate N times as high for SGD, and a clipping that bites. With a division the result is right and the
communication is made twice: a note.

## How to be sure

ddpdoctor compares the norm of the gradients right after backward, before the reduction by hand, and
right before `optimizer.step()`, in the first steps.

## How to mend it

Remove the reduction.

Silent within no_sync, where averaging by hand is the algorithm, and where anything else changes the norm (clipping,
unscaling): the factor is then not that of the ranks.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "Distributed Data Parallel",
internal design.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, ManualReduction, Severity, Training, Wrapped, place, watch

from ._words import counted, listed

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
