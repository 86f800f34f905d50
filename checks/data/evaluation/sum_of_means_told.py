"""The ranks' mean losses are added up, and nothing divides the sum.

## What happens

`dist.all_reduce(loss)` adds up; it does not average. A mean loss of each rank that is added up, and then printed, kept
as the best, or given to a schedule, is N times as large as it is. It grows with the number of GPUs, and runs with
different numbers of them cannot be compared.

## How to be sure

Print the same metric with one rank. ddpdoctor (`ddpdoctor run`) takes note of the lines that add one number of each
rank up, and reports one that the source has computed as a mean (`.mean()`, or by the length of the loader) and prints
or compares afterwards, where no line from there on divides it, or knows the number of ranks.

## How to mend it

    dist.all_reduce(loss)
    loss /= dist.get_world_size()

Where the ranks have different numbers of samples, add up sum and count instead, then divide once.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, torch.distributed.all_reduce
(`op=ReduceOp.SUM`).
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Severity, Summed, Training, place, watch

from ..._evaluation.evaluations import shares_gradients
from ._summed_means import summed_mean

AILMENT = Ailment("DDP646", Severity.WARNING)


@watch(Summed)
def while_training(event: Summed, training: Training) -> Iterator[Finding]:
    """Look for a sum of the ranks' means that is told."""
    if event.rank != 0 or training.framework is not None or not shares_gradients(event.pid, training):
        return
    found = summed_mean(event.callers) if event.elements == 1 else None
    if found is None:
        return
    ranks = training.world_size
    yield Finding(
        f"the mean of each of {ranks} ranks is added up, and nothing divides the sum: it is {ranks} times the mean",
        (
            Evidence(f"a mean of this rank's own: {found.mean}", "", str(found.computed)),
            Evidence(f"{event.operation} adds it up over {ranks} ranks", "divided by the number of ranks",
                     str(event.site)),
            Evidence("the sum is told as it is", "", str(found.told)),
        ),
        Fix(
            "divide by the number of ranks",
            diff=" torch.distributed.all_reduce(mean)\n+mean /= torch.distributed.get_world_size()",
        ),
        place(event.site),
    )  # fmt: skip
