"""The ranks evaluate with different statistics of batch normalisation.

## What happens

In training each rank's batch normalisation keeps running means and variances of the rank's own batches. DDP gives
rank 0's to all at each forward, unless it was told `broadcast_buffers=False` (or `forward_sync_buffers=False`): then
they drift apart, each rank evaluates a model of its own, and the one that rank 0 saves is not the one whose metrics
were averaged.

## How to be sure

The norm of a running variance differs by more than one percent between the ranks at a forward in
evaluation mode, or when a pass over a loader begins that trains nothing while what DDP has wrapped is in evaluation
mode, after the same number of steps.

## How to mend it

SyncBatchNorm, whose statistics are those of all ranks; or average the buffers before an evaluation.

Silent where DDP broadcasts buffers, and where they are equal when the evaluation begins.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "DistributedDataParallel",
broadcast_buffers.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    EvaluationBegan,
    Evidence,
    Finding,
    Fix,
    Joined,
    Severity,
    Training,
    Wrapped,
    place,
    watch,
)

AILMENT = Ailment("DDP568", Severity.WARNING)
TOLERANCE = 0.01


@watch(EvaluationBegan)
def while_training(event: EvaluationBegan, training: Training) -> Iterator[Finding]:
    """Compare the variances once all ranks of the model's group have told them."""
    wrapped = training.of(Wrapped, pid=event.pid, model=event.model)
    told = training.by_rank(EvaluationBegan, model=event.model, steps=event.steps, names=event.names)
    group = [rank for rank in training.by_rank(Joined) if wrapped and rank in wrapped[-1].group]
    if len(group) < 2 or not {*group} <= {*told}:  # noqa: PLR2004 - one rank compares with nobody
        return
    for name, *values in zip(event.names, *(told[rank].variances for rank in group), strict=False):
        if max(values) - min(values) > TOLERANCE * max(values):
            seen = ", ".join(f"{value:.4g} on rank {rank}" for rank, value in zip(group, values, strict=True))
            yield Finding(
                f"the ranks evaluate with different batch normalisation: {name} differs",
                (
                    Evidence(f"norm of {name}: {seen}", "the same on all ranks", f"after {event.steps} steps"),
                    Evidence("broadcast_buffers=False", "", str(wrapped[-1].site)),
                ),
                Fix(
                    "use statistics of all ranks",
                    diff="+model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)\n"
                    " model = DDP(model, broadcast_buffers=False)\n"
                    "or, before each evaluation\n"
                    "+for buffer in model.buffers():\n+    dist.broadcast(buffer, src=0)",
                ),
                place(event.site),
            )
            return
