"""Evaluation counts some samples twice.

## What happens

A DistributedSampler gives each rank the same number of samples. If the data set cannot be divided by the world size,
it repeats its first samples to fill up. In training that does no harm. In an evaluation the repeated samples count
twice, and the result depends on the number of GPUs. It is a note, since a handful of samples seldom matters.

## How to be sure

Compare the number of samples that all ranks evaluated with the length of the data set. ddpdoctor counts the indices
of all ranks where the sampler does not shuffle.

## How to mend it

Drop the surplus after gathering (`accelerator.gather_for_metrics` does), or give each rank its share without padding,
`Subset(dataset, range(rank, len(dataset), world_size))`, and sum both the hits and the counts with all_reduce.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, DistributedSampler,
`drop_last`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, NotRun, Severity, compare_shares, probe

from ._words import at, counted, shown

if TYPE_CHECKING:
    from ddpdoctor.check import LoaderExam

AILMENT = Ailment("DDP612", Severity.NOTE)


@probe
def by_counting(loader: LoaderExam) -> Iterator[Finding]:
    """Count what comes twice where the sampler does not shuffle."""
    loader.several()
    ranks = loader.indexed()
    sampler, length = ranks[0].sampler, ranks[0].length
    if sampler is None or sampler.replicas != len(ranks) or sampler.shuffle is not False:
        raise NotRun("no sampler that splits by rank and does not shuffle")
    if not length or not all(rank.order.complete for rank in ranks) or len({rank.length for rank in ranks}) > 1:
        return
    if sorted(rank.sampler.rank or 0 for rank in ranks if rank.sampler is not None) != list(range(len(ranks))):
        return
    shares = compare_shares([rank.samples() for rank in ranks])
    if not 0 < shares.extra < len(ranks) or shares.distinct < length:
        return
    yield Finding(
        f"{counted(shares.extra, 'sample')} of {length} {'counts' if shares.extra == 1 else 'count'} twice: "
        f"{length} cannot be divided by {len(ranks)} ranks",
        (
            Evidence(f"{length + shares.extra} samples on all ranks together", f"{length}", "samplers"),
            Evidence(f"on two ranks: {shown(shares.repeated)}", "no sample on two ranks", "samplers"),
        ),
        Fix(
            "evaluate each sample once",
            diff="-loader = DataLoader(dataset, sampler=DistributedSampler(dataset, shuffle=False), ...)\n"
            "+share = Subset(dataset, range(dist.get_rank(), len(dataset), dist.get_world_size()))\n"
            "+loader = DataLoader(share, ...)",
        ),
        at(loader, sampler=True),
    )
