"""A rank has no batch at all.

## What happens

The rank's share is empty, or `drop_last=True` drops the only batch since the share is smaller than the batch size. If
all ranks are empty, the loop over batches does nothing and the training "ends" without a step. If only some are, the
others wait for them in their first backward until the timeout. Usual causes: fewer files than ranks, a batch size for
the whole data set where that of a rank belongs.

## How to be sure

Count the batches on each rank. ddpdoctor does so, from the sampler or by loading them.

In a running training (`ddpdoctor run`), ddpdoctor reports a pass for training that came to its end without a batch,
though there are samples.

## How to mend it

Choose a smaller batch_size, which a rank's share holds; or provide more (smaller) files, so that each rank has a
share; or pass `drop_last=False`.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "torch.utils.data.DataLoader".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    EpochEnded,
    EpochStarted,
    Evidence,
    Finding,
    Fix,
    Place,
    Record,
    Severity,
    Training,
    log_pattern,
    place,
    probe,
    watch,
)

from .._words import at, counted

if TYPE_CHECKING:
    from ddpdoctor.check import LoaderExam, RankLoader

AILMENT = Ailment("DDP615", Severity.ERROR)


@probe
def by_counting(loader: LoaderExam) -> Iterator[Finding]:
    """Find the ranks without a batch."""
    ranks = loader.built()
    empty = [rank for rank in ranks if rank.counted() == (0, True)]
    if not empty:
        return
    first = empty[0]
    numbers = ", ".join(str(rank.rank) for rank in empty)
    who = "no rank gets any batch" if len(empty) == len(ranks) else f"rank {numbers} gets no batch"
    place = at(loader)
    share = first.sampler.length if first.sampler else None
    size = max(1, share // 2) if share else 1
    yield Finding(
        f"{who} from the loader: its loop does nothing"
        + ("" if len(empty) == len(ranks) else ", and DDP waits for it on the other ranks"),
        tuple(Evidence(_seen(rank), "a batch or more", f"rank {rank.rank}") for rank in ranks),
        Fix(
            "choose a batch size that a rank's share holds, or give each rank a share",
            diff=f"+DataLoader(dataset, batch_size={size}, ...)",
        ),
        Place(file=place.file, line=place.line, rank=first.rank),
    )


def _seen(rank: RankLoader) -> str:
    share = rank.sampler.length if rank.sampler else rank.length
    size = "" if rank.batch_size is None else f", batch_size={rank.batch_size}, drop_last={rank.drop_last}"
    number, complete = rank.counted()
    held = "" if share is None else f" from {counted(share, 'sample')}"
    return f"{counted(number, 'batch')}{'' if complete else ' and more'}{held}{size}"


@watch(EpochEnded)
def while_training(event: EpochEnded, training: Training) -> Iterator[Finding]:
    """Find a pass for training that gave nothing, though there are samples."""
    if event.batches or not event.complete:
        return
    begun = training.of(EpochStarted, pid=event.pid, loader=event.loader, number=event.number)
    if not begun:  # its beginning was never told: what the loader held is not known
        return
    started = begun[-1]
    share = started.sampler.length if started.sampler else None
    if not started.training or started.owning_library or not started.length:
        return
    size = max(1, (share or started.length) // 2)
    yield Finding(
        f"the training loader of {started.dataset} gives no batch: its loop does nothing",
        (
            Evidence(
                f"0 batches from {counted(started.length if share is None else share, 'sample')}, "
                f"batch_size={started.batch_size}, drop_last={started.drop_last}",
                "a batch or more",
                f"rank {event.rank}",
            ),
        ),
        Fix(
            "choose a batch size that a rank's share holds, or give each rank a share",
            diff=f"+DataLoader(dataset, batch_size={size}, ...)",
        ),
        place(started.made),
    )


@log_pattern(
    r"raise StopIteration\nStopIteration\s{1,9}During handling of the above exception, another exception occurred:\n"
    r"(?:[^\n]*\n){1,40}?[^\n]*raise StopIteration\nStopIteration"
)
def begun_anew(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """A loop over iterations (mmcv, mmengine, or one's own) begins a loader anew, and it gives nothing again."""
    yield Finding(
        "the loader gives no batch on this rank: it was begun anew, and ended at once",
        (record.proof(match, "a batch or more"),),
        Fix(
            "choose a batch size that a rank's share of the samples holds, or keep the last batch",
            diff=" DataLoader(dataset, batch_size=1, drop_last=False)   # of len(dataset) / world size samples a rank",
        ),
        record.place,
    )


@log_pattern(r"ValueError: num_samples should be a positive integer value, but got num_samples=0")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read what the sampler of a shuffled loader says of a data set without a sample."""
    yield Finding(
        "the data set of a shuffled loader has no samples on this rank",
        (record.proof(match, "a sample or more"),),
        Fix(
            "print what this rank found: a path that only one host has, a filter, or a share of fewer files than ranks",
            diff=" dataset = make_dataset(path)\n+print(dist.get_rank(), path, len(dataset))",
        ),
        record.place,
    )
