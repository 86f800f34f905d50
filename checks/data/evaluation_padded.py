"""Some samples of an evaluation are counted twice.

A DistributedSampler repeats samples from the beginning until each rank has as many. In training that does no harm; an
accuracy that is summed over the ranks counts them twice: with 10,000 samples on 8 ranks none, on 7 ranks three.

To be sure: len(sampler) * world size against len(dataset).

A note, for loaders that do not shuffle. Source: PyTorch documentation, DistributedSampler, "drop_last". Holds for torch
2.2 to 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor import Card, Evidence, Finding, Fix, NotRun, Place, Severity
from ddpdoctor.check import probe
from ddpdoctor.probe.loader_facts import LoaderExam

CARD = Card("DDP612", Severity.NOTE)


@probe
def by_counting(loader: LoaderExam) -> Iterator[Finding]:
    """Count the samples that come more than once."""
    ranks = loader.indexed()
    sampler, length = loader.first.sampler, loader.first.length
    if sampler is None or not sampler.distributed or sampler.shuffles or not length:
        raise NotRun("no distributed sampler that keeps the order")
    total = sum(len(rank.orders[0]) for rank in ranks)
    if 0 < total - length < len(ranks) and len(loader.times_seen()) == length:
        yield Finding(
            f"{total - length} of {length} samples are counted twice when the ranks' results are added up",
            (Evidence(f"{total} samples on {len(ranks)} ranks", str(length), "DistributedSampler"),),
            Fix(
                "cut what was gathered to the length of the data set",
                diff="+ predictions = torch.cat(gathered)[: len(dataset)]  # after interleaving the ranks",
            ),
            Place(file=loader.target.rpartition(":")[0]),
        )
