"""A sum over all ranks is added up over the ranks once more.

## What happens

After `dist.all_reduce(correct)` each rank has the sum of all. A second all_reduce of the same tensor, left from an edit
or in a helper that is called twice, adds N times that sum: a number of right answers N times too large, an accuracy of
177 %, or, where the count is added up twice as well, a result that happens to be right. What is decided by it, a best
model or a schedule, depends on the number of GPUs.

## How to be sure

Print the tensor on each rank before both lines: before the second, it is the same on all. ddpdoctor (`ddpdoctor run`)
takes note of what an evaluation adds up, and reports a tensor that is given to another all_reduce by sum, at another
place, where nothing has written to it in between and all ranks give the same.

## How to mend it

Leave the second one out. Where a later line may need the sum, let a function reduce a copy and return it.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, torch.distributed.all_reduce.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Severity, SummedTwice, Training, place, watch

from ..._evaluation.evaluations import shares_gradients

AILMENT = Ailment("DDP763", Severity.WARNING)


@watch(SummedTwice)
def while_training(event: SummedTwice, training: Training) -> Iterator[Finding]:
    """Compare what the ranks give to the second sum."""
    told = training.complete(SummedTwice, site=event.site, first=event.first)
    norms = {each.norm for each in told.values()}
    if len(norms) != 1 or norms == {0.0} or training.framework is not None:
        return
    if not all(shares_gradients(each.pid, training) for each in told.values()):
        return
    ranks = training.world_size
    yield Finding(
        f"a sum over {ranks} ranks is added up over them once more: it becomes {ranks} times as much",
        (
            Evidence("all_reduce adds up what each rank has", "", str(event.first)),
            Evidence(
                f"all_reduce again, of {event.elements} number{'s' if event.elements > 1 else ''} that nothing has "
                f"written to since, norm {event.norm:.6g} on each rank",
                "no second sum",
                str(event.site),
            ),
        ),
        Fix("leave the second sum out", diff="-dist.all_reduce(total)"),
        place(event.site),
    )
