"""A DistributedSampler was made for another data set than the loader has.

## What happens

`DistributedSampler(dataset)` keeps the length of the data set that it is given, and draws indices below it. In a loader
of a longer data set (`DataLoader(train_set, sampler=DistributedSampler(val_set))`) the samples from that length on are
never drawn, on any rank: an epoch is short, the loss falls, and nothing fails. For a shorter data set the indices are
too large, which raises an IndexError, unless the data set takes any index.

## How to be sure

Compare `len(loader.sampler) * world_size` with `len(loader.dataset)`: padding makes the former larger by less than the
world size. ddpdoctor compares both when a pass begins.

Where part of a data set is meant, a `Subset` says so to both the loader and the sampler.

## How to mend it

    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, sampler=sampler)

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: torch/utils/data/distributed.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, EpochStarted, Evidence, Finding, Fix, Severity, Training, place, watch

if TYPE_CHECKING:
    from ddpdoctor.check import Sampler

AILMENT = Ailment("DDP617", Severity.WARNING)
FIX = Fix(
    "make the sampler for the data set of its loader",
    diff="-sampler = DistributedSampler(val_set)\n+sampler = DistributedSampler(train_set)\n"
    " loader = DataLoader(train_set, sampler=sampler)",
)


@watch(EpochStarted)
def while_training(event: EpochStarted, training: Training) -> Iterator[Finding]:
    """Compare how much a sampler gives each rank with the length of the loader's data set."""
    sampler = event.sampler
    if event.number or event.rank or sampler is None or event.length is None or event.owning_library:
        return
    expected = _share(sampler, event.length)
    if expected is None or sampler.length is None or sampler.length == expected:
        return
    before = training.of(EpochStarted, pid=event.pid, number=0)
    if any(each is not event and each.made == event.made and each.length == event.length for each in before):
        return  # said
    replicas = sampler.replicas or 1
    most = sampler.length * replicas
    missing = f"the samples from {most} on are drawn by no rank" if most < event.length else "more than there are"
    yield Finding(
        f"the sampler of the loader of {event.dataset} was made for another data set: it draws from about {most} "
        f"indices, and there are {event.length} samples",
        (
            Evidence(
                f"{sampler.length} indices for each of {replicas} ranks: {missing}",
                f"{expected} for each rank",
                f"the loop of {event.site}",
            ),
        ),
        FIX,
        place(event.drawn_at),
    )


def _share(sampler: Sampler, length: int) -> int | None:
    """Return how many indices torch's sampler gives each rank for a data set of this length; None for any other."""
    if sampler.kind != "DistributedSampler" or not sampler.replicas or not length:
        return None
    if sampler.drop_last and length % sampler.replicas:
        return -(-(length - sampler.replicas) // sampler.replicas)
    return -(-length // sampler.replicas)
