"""An IterableDataset yields the same samples in each worker of a DataLoader.

## What happens

Each worker has a copy of the data set and iterates over it. If `__iter__` does not ask `get_worker_info()` which part
is the worker's, each sample is delivered `num_workers` times, often several times in a row. An epoch is as many times
too long, and its batches are worth less.

## How to be sure

Compare what the workers yield. ddpdoctor loads the first batches and has each worker tell its number and digests of
its samples. Workers count as the same when their samples are so from the first on, or when all ended and hold the
same samples in another order.

In a running training (`ddpdoctor run`) digests of the batches that come from the workers in turn are compared, for
two rounds.

## How to mend it

In `__iter__`, take each `num_workers`-th sample, beginning with the worker's id:
`itertools.islice(self.samples(), info.id, None, info.num_workers)` with `info = get_worker_info()`.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation,
"torch.utils.data.IterableDataset", the examples.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    NotRun,
    OrderSeen,
    Severity,
    Training,
    likeness,
    place,
    probe,
    watch,
)

from .._lines import given_out
from .._passes import rank_pass
from .._words import at, counted

if TYPE_CHECKING:
    from ddpdoctor.check import LoaderExam

AILMENT = Ailment("DDP609", Severity.ERROR)
MEND = Fix(
    "let each worker take its part of the stream",
    diff=" def __iter__(self):\n+    info = get_worker_info()\n"
    "+    workers, worker = (info.num_workers, info.id) if info else (1, 0)\n"
    "+    yield from itertools.islice(self.samples(), worker, None, workers)",
)


@probe
def by_worker(loader: LoaderExam) -> Iterator[Finding]:
    """Compare the samples that the workers of a rank fetched."""
    streams = loader.streams()
    rank, stream = loader.ranks[0], streams[0]
    if not rank.iterable or stream.whole_batches or rank.workers <= 1:
        raise NotRun("no IterableDataset with two or more workers")
    workers = stream.by_worker(rank.workers)
    found = likeness(workers, ended=stream.complete)
    if found is None:
        return
    yield Finding(
        f"{rank.dataset} delivers each sample {rank.workers} times: its {rank.workers} workers all yield the same",
        (
            *(
                Evidence(
                    f"{counted(len(each), 'sample')}, the first {' '.join(each[:4])}",
                    "other samples in each worker",
                    f"rank 0, worker {worker}, digests",
                )
                for worker, each in enumerate(workers[:4])
            ),
            Evidence(
                f"{len(stream.samples)} samples, {len(set(stream.digests()))} of them different",
                "all different",
                "rank 0's loader",
            ),
        ),
        MEND,
        at(loader),
    )


@watch(OrderSeen)
def while_training(event: OrderSeen, training: Training) -> Iterator[Finding]:
    """Compare the batches that come from the workers of a rank in turn."""
    this = rank_pass(event, training)
    if this is None:
        return
    workers = this.started.workers
    if not event.trained or not this.started.iterable or workers <= 1 or len(event.digests) < 2 * workers:
        return
    rounds = [event.digests[at : at + workers] for at in range(0, 2 * workers, workers)]
    if any(len(set(each)) > 1 for each in rounds) or rounds[0] == rounds[1]:
        return
    yield Finding(
        f"{this.started.dataset} delivers each batch {workers} times: its {workers} workers all yield the same",
        (
            *(
                Evidence(" ".join(each[:4]), "another from each worker", f"rank {event.rank}, {which} batches")
                for which, each in zip((f"first {workers}", f"next {workers}"), rounds, strict=True)
            ),
            Evidence(f"num_workers={workers}", "", f"the loop of {event.site}"),
        ),
        MEND,
        place(given_out(this.data.reader) if this.data and this.data.reader else event.site),
    )
