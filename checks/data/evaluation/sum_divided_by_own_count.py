"""A sum over all ranks is divided by what one rank has counted.

## What happens

The number of right answers, or a loss, is added up over the ranks, and then divided by a count that no rank has told
another: the samples, or batches, of this rank's own share. With N ranks the result is about N times what it is: an
accuracy of 180 %, a loss that doubles with the number of GPUs. A best model or a schedule that goes by it is chosen
by the number of ranks, too.

## How to be sure

Print the metric with one rank and with two: it doubles. ddpdoctor (`ddpdoctor run`) takes note of the lines that add
one number of each rank up, and reports one whose result is divided, in the source, by a count that is raised batch by
batch and given to no communication, or by the length of this rank's loader, of its part of the samples, or of a list of
what came of that; or of several that are in one tensor, of which a part alone is added up.

## How to mend it

Add up sum and count together, then divide:

    totals = torch.tensor([correct, count], dtype=torch.float64, device=device)
    dist.all_reduce(totals)
    accuracy = (totals[0] / totals[1]).item()

Silent where the function multiplies or divides by the number of ranks from there on.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, torch.distributed.all_reduce.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ended, Evidence, Finding, Fix, Severity, Site, Summed, Training, place, watch

from ..._evaluation.evaluations import shares_gradients
from ..._ledgers.mixed import mixed
from ._own_counts import OwnCount, own_count

AILMENT = Ailment("DDP645", Severity.WARNING)


@watch(Summed)
def while_training(event: Summed, training: Training) -> Iterator[Finding]:
    """Look for a sum of all ranks that is divided by a count of one."""
    yield from _judged(event, training)


@watch(Ended)
def at_the_end(training: Training) -> Iterator[Finding]:
    """Look again at what was added up before the first step, when nobody knew yet what the ranks share."""
    for event in training.of(Summed, rank=0):
        yield from _judged(event, training)


def _judged(event: Summed, training: Training) -> Iterator[Finding]:
    if event.rank != 0 or training.framework is not None or not shares_gradients(event.pid, training):
        return
    found = (own_count(event.callers) if event.elements == 1 else None) or _mixed(event)
    if found is None:
        return
    ranks = training.world_size
    yield Finding(
        f"a sum over {ranks} ranks is divided by {found.count}, which is this rank's own: the result is about {ranks} "
        "times what it should be",
        (
            Evidence(f"{event.operation} adds up what each of {ranks} ranks has", "", str(event.site)),
            Evidence(f"divided by {found.count}", "the sum of all ranks' counts", str(found.site)),
            Evidence(found.counted, f"{found.count} is added up over the ranks as well"),
        ),
        Fix(
            "add up sum and count together, then divide",
            diff=f"+totals = torch.tensor([own_sum, {found.count}], dtype=torch.float64, device=device)\n"
            "+torch.distributed.all_reduce(totals)\n+mean = (totals[0] / totals[1]).item()",
        ),
        place(found.site),
    )


def _mixed(event: Summed) -> OwnCount | None:
    """Find a quotient of what is added up and what counts this rank's part, in the function that adds up."""
    found = mixed(Site(*event.callers[0])) if event.callers else None
    if found is None or not found.by_own_count:
        return None
    where = Site(event.callers[0][0], found.line, event.callers[0][2])
    return OwnCount(found.own, f"{found.quotient}: {found.own} is given to no communication", where)
