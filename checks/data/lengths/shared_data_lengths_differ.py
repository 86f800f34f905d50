"""Accelerate, or the transformers Trainer, shares out a data set that has another length on each rank.

## What happens

`accelerator.prepare(loader)`, which the Trainer calls as well, gives each rank each N-th batch of *its own* data set:
all ranks have to have the same one. Where each rank has read files of its own, or filtered by itself, it trains on
each N-th batch of what it has, and the rest is never seen. The ranks have different numbers of batches, too: the rank
with more waits at the end of the epoch for the others, and a schedule that is computed from the length of the loader
gives each rank another learning rate.

## How to be sure

Print `len(dataset)` on each rank, before `prepare`. ddpdoctor (`ddpdoctor run`) compares the lengths when the ranks
begin their first pass over a loader that Accelerate shares out.

## How to mend it

Give every rank the whole data set, and leave the sharing to Accelerate:

    dataset = load_dataset(files)                       # all files, on each rank
    loader = accelerator.prepare(DataLoader(dataset, batch_size=32, shuffle=True))

## Versions and sources

Source: accelerate/data_loader.py, `prepare_data_loader` and `BatchSamplerShard`. Seen with accelerate 1.15,
transformers 5.23 and torch 2.13 CPU.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, EpochStarted, Evidence, Finding, Fix, Severity, Training, place, watch

from .._words import SHOWN, counted, sharer

AILMENT = Ailment("DDP671", Severity.ERROR)


@watch(EpochStarted)
def while_training(event: EpochStarted, training: Training) -> Iterator[Finding]:
    """Compare the lengths once all ranks have begun the first pass over a loader."""
    if event.number or not event.training:
        return
    ranks = training.complete(EpochStarted, loader=event.loader, number=0, training=True, site=event.site)
    known = [each.length for each in ranks.values() if each.sampler is not None and each.sampler.shares == len(ranks)]
    lengths = [length for length in known if length]
    alike = len({(each.dataset, each.batch_size) for each in ranks.values()}) == 1
    if not ranks or not alike or len(lengths) < len(ranks) or len(set(lengths)) == 1:
        return
    name = sharer(training)
    least, most = (list(ranks)[lengths.index(number)] for number in (min(lengths), max(lengths)))
    yield Finding(
        f"{name} shares out a data set of another length on each rank, {min(lengths)} samples on rank {least} and "
        f"{max(lengths)} on rank {most}: each rank trains on a part of its own, and the rest is never used",
        tuple(
            Evidence(
                f"{counted(each.length or 0, 'sample')} in {each.dataset}: {counted(each.batches or 0, 'batch')} here",
                "the same data set on all ranks",
                f"rank {rank}",
            )
            for rank, each in ranks.items()
        )[:SHOWN],
        Fix(
            f"give every rank the whole data set: {name} shares it out",
            diff="-dataset = read(files[rank::world_size])\n+dataset = read(files)",
        ),
        place(event.site),
    )
