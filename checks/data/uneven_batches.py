"""The ranks have different numbers of batches.

DDP's backward is a collective: in the last steps the rank with more batches waits for one that has left the loop. The
progress bar stops near the end of the epoch, and the time-out comes half an hour later.

To be sure: print len(loader) on each rank.

Typical: files or shards dealt out without regard to their size, random_split without a common seed, a filter that
differs by rank. DistributedSampler evens the shares out by itself. Source: PyTorch documentation, "Distributed
Training with Uneven Inputs Using the Join Context Manager". Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor import Card, Evidence, Finding, Fix, NotRun, Place, Severity, Table
from ddpdoctor.check import probe
from ddpdoctor.probe.loader_facts import LoaderExam, RankLoader

CARD = Card("DDP607", Severity.ERROR)


@probe
def by_counting(loader: LoaderExam) -> Iterator[Finding]:
    """Count the batches on each rank: really loaded, else by len()."""
    counts = {rank.rank: batches(rank) for rank in (loader.first, *loader.ranks[1:])}
    if any(count is None for count in counts.values()):
        raise NotRun("the loader has no length, and its epoch is too long to count")
    known = {rank: count for rank, count in counts.items() if count is not None}
    if len(set(known.values())) > 1:
        fewest, most = min(known, key=known.__getitem__), max(known, key=known.__getitem__)
        yield Finding(
            f"rank {most} has {known[most]} batches and rank {fewest} {known[fewest]}",
            tuple(
                Evidence(f"{count} batches", f"{known[fewest]} on all", f"rank {rank}") for rank, count in known.items()
            ),
            Fix(
                "give all ranks as many, or let DDP join those that end early",
                diff="+ with model.join():\n      for batch in loader:",
            ),
            Place(file=loader.target.rpartition(":")[0], rank=most),
            table=Table(("rank", "batches"), tuple(known.items())),
        )


def batches(rank: RankLoader) -> int | None:
    """Give the number of batches of an epoch, None where it is not known."""
    return len(rank.loaded) if rank.complete else rank.batches
