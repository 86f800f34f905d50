"""Data that is shared out already, by a sampler, a stream or by hand, is shared out once more by Accelerate.

## What happens

`accelerator.prepare(loader)` gives each rank each N-th batch of the loader. If the loader's sampler is a
DistributedSampler, that has already given each rank its share: the rank then trains on each N-th batch of that. With
two ranks half of the data is never used, with eight ranks seven eighths, and the epochs are as much shorter.

So it is with an IterableDataset whose `__iter__` gives out its rank's share. Accelerate, and the Trainer with it, reads
a stream on rank 0 alone and hands each rank its part of those batches: the shares of all other ranks are never read.
With `dispatch_batches=False` each rank reads its own share, and takes a share of that.

## How to be sure

`len(loader)` after `prepare` is the number of samples divided by the batch size and by N squared. In a running training
(`ddpdoctor run`) the sampler beneath Accelerate's own says `num_replicas`; in a source (`ddpdoctor lint`) a loader with
a DistributedSampler is handed to `prepare`. Subsets that the ranks have cut by hand, and that have no sample in common,
are seen in a running training as well.

## How to mend it

Leave the sampler out; Accelerate also calls set_epoch of its own:

    loader = accelerator.prepare(DataLoader(dataset, batch_size=32, shuffle=True))

and have an IterableDataset yield all of its samples on each rank.

## Versions and sources

Source: accelerate/data_loader.py, `prepare_data_loader` and `BatchSamplerShard`. Seen with accelerate 1.15 and torch
2.13 CPU.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    DISPATCHER,
    SHARD,
    TRAINER,
    Ailment,
    DataSeen,
    Evidence,
    Finding,
    Fix,
    OrderSeen,
    Severity,
    ShardedTwice,
    Training,
    lint,
    place,
    watch,
)

from ..._scripts.source import prepared, sharded_loaders
from .._passes import has_shares_of_its_own, same_pass, shared_out_by_a_library
from .._words import SHOWN, sharer
from ._part import part_of

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP621", Severity.ERROR)
OF_STREAMS = {DISPATCHER, SHARD}
MEND = Fix(
    "leave the sampler to Accelerate",
    diff="-loader = DataLoader(dataset, sampler=DistributedSampler(dataset))\n"
    "+loader = DataLoader(dataset, shuffle=True)\n loader = accelerator.prepare(loader)",
)


OF_TRAINER = Fix(
    "leave the sampler to the Trainer, which shares out what any sampler gives",
    diff=" class MyTrainer(Trainer):\n     def _get_train_sampler(self, ...):\n"
    "-        return DistributedSampler(self.train_dataset, ...)\n+        return RandomSampler(self.train_dataset)",
)


@watch(ShardedTwice)
def while_training(event: ShardedTwice, training: Training) -> Iterator[Finding]:
    """Report the loop that goes through it, once for the training, by rank 0."""
    if event.rank == 0 and event.shards in OF_STREAMS:
        yield _of_a_stream(event, training)
    elif event.rank == 0:
        is_trainers = training.framework is TRAINER
        yield Finding(
            f"the data is shared out twice: {event.sampler} gives each of {event.ranks} ranks a share, and "
            f"{TRAINER.name if is_trainers else 'Accelerate'} each rank a share of that, 1/{event.ranks**2} of all",
            (
                Evidence(f"{event.sampler} with num_replicas={event.ranks}", "no sampler of ranks", "the loader"),
                Evidence(f"{event.shards} with num_processes={event.ranks}", "", "around it, of accelerator.prepare"),
            ),
            OF_TRAINER if is_trainers else MEND,
            place(event.site),
        )


def _of_a_stream(event: ShardedTwice, training: Training) -> Finding:
    name, dispatched = sharer(training), event.shards == DISPATCHER
    read = [each.reader for each in training.of(DataSeen, pid=event.pid) if each.reader is not None]
    return Finding(
        f"{event.sampler} gives each of {event.ranks} ranks a share, and {name} reads it on rank 0 alone and shares "
        f"that out: {event.ranks - 1} of {event.ranks} shares are never read"
        if dispatched
        else f"the data is shared out twice: {event.sampler} gives each of {event.ranks} ranks a share, and {name} "
        f"each rank a share of that, 1/{event.ranks**2} of all",
        (
            Evidence(f"{event.sampler} speaks of its rank and of the number of ranks", "all samples", "its methods"),
            Evidence(f"{event.shards} around it, of {event.ranks} ranks", "", "the loader"),
        ),
        Fix(
            f"have {event.sampler} yield all samples: {name} shares them out",
            diff="-for sample in itertools.islice(samples, rank, None, world_size):\n+for sample in samples:\n"
            "     yield sample",
        ),
        place(read[-1] if read else event.site),
    )


@watch(OrderSeen)
def cut_by_hand(event: OrderSeen, training: Training) -> Iterator[Finding]:
    """Compare the Subsets that the ranks have cut for themselves, and that Accelerate cuts once more."""
    ranks = same_pass(event, training)
    data = {rank: each.data for rank, each in ranks.items() if each.data is not None}
    if not shared_out_by_a_library(ranks) or len(data) < len(ranks) or not has_shares_of_its_own(list(data.values())):
        return
    name = sharer(training)
    yield Finding(
        f"the data is shared out twice: each rank has a Subset that no other rank has, and {name} gives it a share of "
        f"that, 1/{len(ranks) ** 2} of all",
        tuple(
            Evidence(
                f"{each.started.length} samples, begins {', '.join(data[rank].first)}", "", f"rank {rank}'s Subset"
            )
            for rank, each in ranks.items()
        )[:SHOWN],
        Fix(
            f"give every rank the whole data set: {name} shares it out",
            diff="-train_dataset = Subset(dataset, range(rank, len(dataset), world_size))\n+train_dataset = dataset",
        ),
        place(event.site),
    )


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a loader that certainly has a DistributedSampler, in the call of prepare."""
    sharded = dict(sharded_loaders(script))
    for call in prepared(script, "prepare", "prepare_data_loader"):
        for each in call.args:
            if isinstance(each, ast.Name) and each.id in sharded and _is_the_loader(script, each):
                yield Finding(
                    f"{each.id} has a DistributedSampler, and prepare shares it out once more",
                    (script.seen(call), script.seen(sharded[each.id], "no sampler: prepare puts one in")),
                    MEND,
                    script.place(call),
                )


def _is_the_loader(script: Script, name: ast.Name) -> bool:
    """Whether a variable is given the loader, and what prepare returns, and nothing else."""
    return len(script.tree.lookup(name.id, name)) <= 2  # noqa: PLR2004 - these two


@lint
def by_process(script: Script) -> Iterator[Finding]:
    """Look for a loader of a part that the number of the process has cut, in the call of prepare."""
    if "accelerate" not in script.imported:
        return
    for call in prepared(script, "prepare", "prepare_data_loader"):
        for each in call.args:
            cut = part_of(script, each) if isinstance(each, ast.Name) and _is_the_loader(script, each) else None
            if cut is not None:
                yield Finding(
                    f"{each.id} is of a part that the number of the process has cut, and prepare shares it out once "  # type: ignore[attr-defined]
                    "more",
                    (script.seen(call), script.seen(cut, "the whole data set on each process: prepare shares it out")),
                    Fix(MEND.summary, diff=f"-{script.code(cut)}   # without process_index and num_processes"),
                    script.place(call),
                )
