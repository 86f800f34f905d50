"""One rank works longer in each step than the others, and they wait for it.

## What happens

The ranks meet in each backward, and the slowest sets the pace of all. What makes one slow: rank 0 that logs, evaluates
or writes within the step; longer sequences; fewer cores than the others have; another process beside it.

## How to be sure

`ddpdoctor run --profile 50 -- COMMAND`: the rank's forward, optimizer or the rest of its step is longer, and the
others' backward is longer by as much. ddpdoctor finds it where that is more than a fifth of the step and 5 ms, of the
same rank in nearly all of 40 steps or more; and not where that rank's wait for a core explains it: on a loaded machine
nothing can be told. Where kernels run on a GPU, the clock on the wall does not tell either, and ddpdoctor says nothing.

## How to mend it

The finding says which part of the step is longer. For forward: compare the sizes of the batches, and the cores of the
ranks. For the rest of the step: what `if rank == 0:` does there, do every hundredth step, or after the epoch.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: PyTorch documentation, "Distributed Data Parallel", internal design.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Place, RankSteps, Severity, StepsTimed, watch

from ._steps import LARGE, behind, middle, on_cpu, seen

AILMENT = Ailment("DDP904", Severity.NOTE)
SHOWN = 4  # ranks
PARTS = {"forward": "forward", "optimizer": "the optimizer's step", "rest": "the rest of the step"}


@watch(StepsTimed)
def while_training(event: StepsTimed) -> Iterator[Finding]:
    """Look for the rank that the others wait for, in step after step, and for what is its own."""
    on_cpu(event)
    late = behind(event, "own")
    if late is None:
        return
    others = [each for each in event.ranks if each is not late.rank]
    fewer = late.rank.cpus < min(each.cpus for each in others)
    if not fewer and late.share - late.rank.starved < LARGE:
        return  # another process may have had its core
    excess = {part: middle(late.rank, part) - statistics.median(middle(each, part) for each in others)
              for part in PARTS}  # fmt: skip
    part = max(excess, key=lambda each: excess[each])
    yield Finding(
        f"rank {late.rank.rank} works {1e3 * late.seconds:.0f} ms a step longer than the others, in {PARTS[part]}, and "
        f"they wait for it: {late.share:.0%} of each step",
        (
            seen(late.rank, part, PARTS[part], "as the other ranks"),
            *(seen(each, part, PARTS[part]) for each in others[: SHOWN - 1]),
            *(seen(each, "backward", "backward, with its wait for the others,")
              for each in (late.rank, *others[: SHOWN - 1])),
            *_own(late.rank, others),
        ),
        _fix(late.rank, part, fewer=fewer),
        Place(rank=late.rank.rank),
    )  # fmt: skip


def _own(rank: RankSteps, others: list[RankSteps]) -> Iterator[Evidence]:
    """Yield what the rank has less, or more, of than all others."""
    for what, mine, theirs in (
        ("cores it may run on", rank.cpus, {each.cpus for each in others}),
        ("threads of an operation", rank.threads, {each.threads for each in others}),
    ):
        if theirs != {mine}:
            said = ", ".join(map(str, sorted(theirs)))
            yield Evidence(f"{what}: {mine}", f"{said}, as the others", f"rank {rank.rank}")


def _fix(rank: RankSteps, part: str, *, fewer: bool) -> Fix:
    if fewer:
        return Fix(f"give rank {rank.rank} as many cores as the others have (taskset, numactl, --cpus-per-task)")
    if part == "forward":
        return Fix("make the batches of all ranks alike: bucket samples by length, and shuffle with one seed")
    return Fix(f"take what rank {rank.rank} alone does out of the step, or do it every hundredth time")
