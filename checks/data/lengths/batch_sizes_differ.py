"""The ranks have different batch sizes.

## What happens

DDP averages the ranks' gradients with equal weight. If rank 0's batches hold 32 samples and rank 1's hold 16, each
sample of rank 1 counts twice as much, and the gradient is not that of the whole batch. The ranks with small batches
wait for the others in each step.

## How to be sure

Print the batch size on each rank. ddpdoctor compares the sizes of the batches that each rank's sampler really makes,
the last one left out; loaders whose batches vary by design are not judged.

In a running training (`ddpdoctor run`) the batch sizes of the loaders that train one model are compared.

## How to mend it

Use the same batch_size on all ranks. On GPUs of different memory, accumulate gradients instead.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "DistributedDataParallel".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, NotRun, OrderSeen, Severity, Training, place, probe, watch

from .._passes import same_pass, told
from .._words import SHOWN, at

if TYPE_CHECKING:
    from ddpdoctor.check import LoaderExam, RankLoader

AILMENT = Ailment("DDP614", Severity.WARNING)


@probe
def by_counting(loader: LoaderExam) -> Iterator[Finding]:
    """Compare the sizes of full batches."""
    ranks = loader.several()
    sizes = [_size(rank) for rank in ranks]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        raise NotRun("the batches have no size in common, or there are fewer than two")
    if len(set(known)) == 1 or loader.for_evaluation:
        return
    yield Finding(
        f"the batch size differs between ranks: {', '.join(map(str, sizes))}",
        tuple(
            Evidence(f"{size} samples in a batch", f"{known[0]} as on rank 0", f"rank {rank.rank}")
            for rank, size in zip(ranks, known, strict=True)
        ),
        Fix("give all ranks the same batch size", diff=f"+DataLoader(dataset, batch_size={min(known)}, ...)"),
        at(loader),
    )


def _size(rank: RankLoader) -> int | None:
    """Return the size of all batches but the last; None where they differ, or are too few."""
    if not rank.plain:
        return rank.batch_size
    full = set(rank.order.sizes[:-1])
    return full.pop() if len(full) == 1 else None


@watch(OrderSeen)
def while_training(event: OrderSeen, training: Training) -> Iterator[Finding]:
    """Compare the batch sizes of loaders that train the same model."""
    ranks = same_pass(event, training)
    sizes = [each.started.batch_size for each in ranks.values()]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes) or len(set(known)) <= 1:
        return
    yield Finding(
        f"the batch size differs between ranks: {told(known)}",
        tuple(
            Evidence(
                f"batch_size={size}" + ("" if each.started.batches is None else f", {each.started.batches} batches"),
                f"batch_size={known[0]} as on rank {next(iter(ranks))}",
                f"rank {rank}'s loader",
            )
            for size, (rank, each) in zip(known, ranks.items(), strict=True)
        )[:SHOWN],
        Fix("give all ranks the same batch size", diff=f"+DataLoader(dataset, batch_size={min(known)}, ...)"),
        place(next(iter(ranks.values())).started.made),
    )
