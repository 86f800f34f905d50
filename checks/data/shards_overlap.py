"""The ranks' shares overlap, or leave samples out.

Each rank is to have its own share. Where the samplers shuffle with different seeds (a seed that depends on the rank),
each deals out another shuffle: some samples come to two ranks, others to none. With 10 samples on 2 ranks and the
ranks as seeds, 7 were seen and 3 never.

To be sure: gather the indices of an epoch of all ranks and count.

DistributedSampler repeats at most N - 1 samples so that all ranks have as many, or with drop_last leaves as many out:
that is not reported. Source: PyTorch documentation, DistributedSampler, "seed: This number should be identical across
all processes"; the numbers were seen with torch 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor import Card, Evidence, Finding, Fix, NotRun, Place, Severity, Table
from ddpdoctor.check import probe
from ddpdoctor.probe.loader_facts import LoaderExam

CARD = Card("DDP606", Severity.ERROR)


@probe
def by_counting(loader: LoaderExam) -> Iterator[Finding]:
    """Count each sample over all ranks."""
    ranks = loader.indexed()
    samplers = [rank.sampler for rank in ranks if rank.sampler is not None]
    length, world = loader.first.length, len(ranks)
    if not length or world == 1 or not all(sampler.distributed for sampler in samplers):
        raise NotRun("needs distributed samplers on two ranks")
    if any(
        (sampler.rank, sampler.replicas) != (rank.rank, world) for sampler, rank in zip(samplers, ranks, strict=True)
    ):
        return  # a sampler that is dealt wrongly is another ailment
    if loader.same_data is False:
        return
    seen = loader.times_seen()
    twice = sum(times - 1 for times in seen.values())
    if twice >= world:
        never = length - len(seen)
        seeds = ", ".join(f"rank {rank.rank}: {sampler.seed}" for sampler, rank in zip(samplers, ranks, strict=True))
        line = loader.first.source.sampler_line if loader.first.source else None
        yield Finding(
            f"{twice} samples come to more than one rank and {never} of {length} to none",
            (
                Evidence(f"{len(seen)} of {length} samples seen in an epoch", f"{length}", f"{world} ranks"),
                Evidence(f"seeds: {seeds}", "the same on all ranks", "samplers"),
            ),
            Fix(
                "seed all samplers alike",
                diff="- DistributedSampler(dataset, seed=rank)\n+ DistributedSampler(dataset, seed=0)",
            ),
            Place(file=line[0], line=line[1]) if line else Place(),
            table=Table(("rank", "samples"), tuple((rank.rank, len(rank.orders[0])) for rank in ranks)),
        )
