"""Whether the ranks of a named loader go through one data set as a whole, and how that is told."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    FABRIC,
    LIGHTNING,
    SHARED,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    RankLoader,
    Severity,
    Table,
    same_order,
)

from .._words import at, counted, shared_out, shown

if TYPE_CHECKING:
    from ddpdoctor.check import LoaderExam, Sampler, Training

MEND = Fix(
    "give each rank its share, and tell the sampler each epoch",
    diff="+sampler = DistributedSampler(dataset)\n"
    "-loader = DataLoader(dataset, shuffle=True, ...)\n+loader = DataLoader(dataset, sampler=sampler, ...)\n"
    " for epoch in range(epochs):\n+    sampler.set_epoch(epoch)",
)


def are_identical(ranks: tuple[RankLoader, ...]) -> bool:
    """Whether the ranks go through the same samples in the same order."""
    return same_order([replace(rank.order, indices=rank.samples()) for rank in ranks])


def is_whole(rank: RankLoader, everything: int) -> bool:
    """Whether a rank goes through all samples."""
    sampler = rank.sampler
    if sampler is None or sampler.replacement:
        return False
    if rank.order.complete:
        return len(set(rank.order.indices)) >= SHARED * everything
    planned = sampler.length if sampler.standard else None  # too long to be read: torch's own can be believed
    return planned is not None and rank.length is not None and planned >= SHARED * rank.length


def told(loader: LoaderExam, *, identical: bool) -> Finding:
    """Return the finding that each rank goes through the whole."""
    ranks = loader.ranks
    length = ranks[0].length
    sequential = all(rank.sampler is not None and rank.sampler.shuffle is False for rank in ranks)
    severity, ambiguity = None, None
    if loader.for_evaluation:
        severity = Severity.NOTE
    elif sequential:
        severity = Severity.WARNING
        ambiguity = Ambiguity(
            ("a loader for training, without DistributedSampler", "evaluation, meant to be done on each rank"),
            f"grep -n 'DataLoader(' {loader.file or '*.py'}",
        )
    seen = [len(set(rank.order.indices)) for rank in ranks]
    if min(seen) >= SHARED * (length or 0):
        what = f"goes through all {counted(length or 0, 'sample')} of {ranks[0].dataset}"
    else:
        what = f"draws the same {counted(max(seen), 'sample')} of {ranks[0].dataset}"
    return Finding(
        f"each of {len(ranks)} ranks {what}" + (", in the same order" if identical else ""),
        (
            *(
                Evidence(f"{shown(rank.samples())}, {counted(count, 'sample')}", "", f"rank {rank.rank}'s sampler")
                for rank, count in zip(ranks, seen, strict=True)
            ),
            Evidence(
                f"{counted(len(ranks[0].probes), 'sample')} fetched by index: the same on each rank",
                f"about {max(seen) // len(ranks)} samples for each rank that no other has",
                "data set",
            ),
        ),
        MEND,
        at(loader),
        severity=severity,
        table=_table(ranks),
        ambiguity=ambiguity,
    )


def _table(ranks: tuple[RankLoader, ...]) -> Table:
    rows = []
    for rank in ranks:
        own = set(rank.samples())
        others = set[object]().union(*(other.samples() for other in ranks if other is not rank))
        kind = rank.sampler.kind if rank.sampler else ""
        rows.append((rank.rank, kind, len(own), len(own & others), rank.length or ""))
    return Table(("rank", "sampler", "samples seen", "shared with other ranks", "of"), tuple(rows))


def mend(training: Training, sampler: Sampler) -> Fix:
    """Return how the ranks get their shares: of batches that only their own sampler can share out, from that."""
    framework = training.framework
    if not sampler.of_batches or (framework is not None and framework.name not in {LIGHTNING.name, FABRIC.name}):
        return shared_out(training, MEND)
    keeps = {
        LIGHTNING.name: "\n trainer = Trainer(use_distributed_sampler=False, ...)   # stays: the sampler shares out",
        FABRIC.name: "\n loader = fabric.setup_dataloaders(loader, use_distributed_sampler=False)",
    }.get(framework.name if framework is not None else "", "")
    return Fix(
        f"share the batches out in {sampler.kind}: in one order on all ranks, each rank takes every N-th",
        diff=f" class {sampler.kind}:\n     def __iter__(self):\n"
        "+        rank, ranks = dist.get_rank(), dist.get_world_size()\n"
        "+        count = len(batches) // ranks * ranks   # as many for each\n"
        "+        yield from batches[rank:count:ranks]\n"
        f"     def __len__(self):\n+        return number_of_batches // dist.get_world_size(){keeps}",
    )
