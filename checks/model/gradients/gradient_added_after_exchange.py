"""Backward adds to a gradient after DDP has exchanged it.

## What happens

Reentrant activation checkpointing runs a backward inside the backward. A layer that is used in two checkpointed places
reports its gradient to DDP after the first of them. Where every parameter of its bucket has reported by then, DDP
exchanges the bucket at once, and what the second place adds is each rank's own: the replicas drift apart, and nothing
is raised. Where the bucket is not complete yet, DDP raises instead (parameter-ready-twice).

## How to be sure

ddpdoctor counts how often backward adds to each gradient and how many backwards begin within another, and compares
between the ranks what their optimizers are given, in two steps: those gradients differ that were added to more often
than others.

## How to mend it

`torch.utils.checkpoint.checkpoint(..., use_reentrant=False)`; for transformers
`model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})`.

## Versions and sources

Seen with torch 2.13 CPU. Source: PyTorch documentation, "torch.utils.checkpoint" and "DistributedDataParallel".
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Severity, StepFingerprinted, Training, place, watch

from ..._ledgers.ledger import data_parallel_sheets
from ..._ledgers.wordings import seen
from .._alike import added_after_exchange
from .._words import counted, listed

AILMENT = Ailment("DDP558", Severity.ERROR)
SURE = 2  # compared steps


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Find gradients that DDP exchanged before their last part was added, in two compared steps."""
    steps = data_parallel_sheets(event, training, SURE)[-SURE:]
    late = [added_after_exchange(each) for each in steps]
    if not late or not all(late):
        return
    found, step = late[-1], steps[-1]
    first, when = next(iter(step.ranks.values())), f"right before step {step.number}"
    least = min(each.added for each in step.lines if each.added)
    yield Finding(
        f"backward adds to {counted(len(found), 'gradient')} after DDP has exchanged them, on each rank for itself: "
        + listed([each.name for each in found]),
        (
            *seen(found[0], step),
            Evidence(f"{found[0].name} is added to {found[0].added} times", f"{least}, as others", when),
            Evidence(f"{first.nested} backwards began within another", "none, with use_reentrant=False", when),
        ),
        Fix(
            "use the checkpointing that is not reentrant",
            diff="-checkpoint(block, x, use_reentrant=True)\n+checkpoint(block, x, use_reentrant=False)",
        ),
        place(first.site),
    )
