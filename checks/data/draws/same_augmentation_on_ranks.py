"""All ranks draw the same random augmentations.

## What happens

A data set that holds a random generator with a fixed seed, or a factory that seeds the global generators alike on all
ranks, makes each rank crop and flip its samples like the others do theirs. With a DistributedSampler the samples
differ, so nothing is wrong: there is only less variety in a step than there could be.

## How to be sure

Fetch the same sample twice on each rank. ddpdoctor gives the ranks different global seeds first, as a training that
seeds nothing has, and compares what the ranks drew.

## How to mend it

Where you want more variety, add the rank to the seed of the augmentation,
`numpy.random.default_rng(seed + dist.get_rank())`. Do not add it to the seed of the sampler, which must be the same
on all ranks.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "Reproducibility".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Severity, probe

from .._words import at

if TYPE_CHECKING:
    from ddpdoctor.check import LoaderExam

AILMENT = Ailment("DDP611", Severity.NOTE)


@probe
def by_fetching_twice(loader: LoaderExam) -> Iterator[Finding]:
    """Compare what the ranks made of the same sample."""
    loader.several()
    ranks = loader.indexed()
    first = ranks[0].drawn
    if len(set(first)) < 2 or any(rank.drawn != first for rank in ranks):  # noqa: PLR2004 - not random
        return
    yield Finding(
        f"all ranks draw the same augmentations of {ranks[0].dataset}: "
        "two different versions of sample 0 came out alike on each",
        tuple(
            Evidence(
                " then ".join("".join(each)[:12] for each in rank.drawn),
                "other versions on each rank",
                f"rank {rank.rank}, digests",
            )
            for rank in ranks
        ),
        Fix(
            "add the rank to the seed of the augmentation",
            diff="-self.rng = numpy.random.default_rng(seed)\n"
            "+self.rng = numpy.random.default_rng(seed + dist.get_rank())",
        ),
        at(loader),
    )
