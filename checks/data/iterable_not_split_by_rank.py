"""An IterableDataset yields the same samples on each rank.

A DataLoader cannot deal out what it cannot index: an IterableDataset has to leave out the other ranks' samples
itself. Otherwise all ranks train on identical batches, and N GPUs do the work of one.

To be sure: print a digest of the first batch on each rank.

Reported when the batches that were really loaded are the same, one by one, on two ranks or more (at least two batches
that are not constant). Source: PyTorch documentation, torch.utils.data.IterableDataset. Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor import Card, Evidence, Finding, Fix, NotRun, Place, Severity
from ddpdoctor.check import probe
from ddpdoctor.probe.loader_facts import LoaderExam

CARD = Card("DDP608", Severity.ERROR)
ENOUGH = 2  # equal batches that are no chance


@probe
def by_contents(loader: LoaderExam) -> Iterator[Finding]:
    """Compare the batches that were loaded."""
    if loader.first.orders:
        raise NotRun("the loader chooses its samples by indices")
    if len(loader.ranks) == 1:
        raise NotRun("needs two ranks")
    compared = min(len(rank.loaded) for rank in loader.ranks)
    if compared < ENOUGH:
        raise NotRun(f"{compared} batches are too few to compare")
    rows = [rank.loaded[:compared] for rank in loader.ranks]
    telling = [digests for digests in zip(*rows, strict=True) if all(digests)]
    if len({digests[0] for digests in telling}) >= ENOUGH and all(len(set(digests)) == 1 for digests in telling):
        yield Finding(
            f"{loader.first.dataset} yields the same batches on all {len(loader.ranks)} ranks",
            tuple(
                Evidence(
                    f"batches {', '.join(digest[:8] for digest in rank.loaded[:3])}",
                    "others than rank 0's",
                    f"rank {rank.rank}",
                )
                for rank in loader.ranks
            ),
            Fix(
                "leave out the other ranks' samples",
                diff="  def __iter__(self):\n+     rank, world = dist.get_rank(), dist.get_world_size()\n"
                "-     yield from self.samples\n+     yield from itertools.islice(self.samples, rank, None, world)",
            ),
            Place(file=loader.target.rpartition(":")[0]),
        )
