"""A DistributedSampler has the wrong rank or the wrong number of replicas.

The sampler deals the samples out by its `rank` among `num_replicas`. A rank that is the same on several processes (a
constant, or LOCAL_RANK on several hosts) makes them load the same share, and other shares are never seen; a
num_replicas that is not the world size drops or doubles samples.

To be sure: print sampler.rank and sampler.num_replicas on each rank.

Both come right by themselves when they are left out and the process group is initialised first. Source: PyTorch
documentation, DistributedSampler. Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor import Card, Evidence, Finding, Fix, NotRun, Place, Severity, Table
from ddpdoctor.check import probe
from ddpdoctor.probe.loader_facts import LoaderExam

CARD = Card("DDP603", Severity.ERROR)


@probe
def by_its_own_word(loader: LoaderExam) -> Iterator[Finding]:
    """Compare each sampler's rank and replicas with the job's."""
    if loader.first.sampler is None or not loader.first.sampler.distributed:
        raise NotRun("no distributed sampler")
    world = len(loader.ranks)
    wrong = [
        (rank.rank, rank.sampler.rank, rank.sampler.replicas)
        for rank in loader.ranks
        if rank.sampler is not None
        and rank.sampler.rank is not None
        and (rank.sampler.rank, rank.sampler.replicas) != (rank.rank, world)
    ]
    shares = {(rank.sampler.rank, rank.sampler.replicas) for rank in loader.ranks if rank.sampler is not None}
    # A permutation of the ranks deals everything out once: odd, and right.
    if wrong and not (len(shares) == world and {replicas for _, replicas in shares} == {world}):
        line = loader.first.source.sampler_line if loader.first.source else None
        yield Finding(
            f"the sampler is dealt wrongly on {len(wrong)} of {world} ranks",
            tuple(
                Evidence(f"rank={rank}, num_replicas={replicas}", f"rank={real}, num_replicas={world}", f"rank {real}")
                for real, rank, replicas in wrong
            ),
            Fix(
                "leave both out: the process group knows them",
                diff="- DistributedSampler(dataset, num_replicas=..., rank=...)\n+ DistributedSampler(dataset)",
            ),
            Place(file=line[0], line=line[1]) if line else Place(),
            table=Table(("process", "sampler's rank", "num_replicas"), tuple((a, b or 0, c or 0) for a, b, c in wrong)),
        )
