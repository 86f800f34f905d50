"""set_epoch is called, and the order stays the same.

## What happens

The sampler has a set_epoch, but its order does not depend on it: a class of one's own that seeds its generator with a
constant, shuffles once when it is made, or keeps the batches that it computed first. Each epoch then repeats the
order of the first, however often set_epoch is called.

## How to be sure

ddpdoctor reads an epoch after set_epoch(1) and one after set_epoch(2), and compares the orders. Not reported for
samplers that do not shuffle, or that shuffle differently each time without being told.

In a running training (`ddpdoctor run`), ddpdoctor reports two epochs that had one order though the sampler says that
it shuffles, and its epoch has changed.

## How to mend it

Seed the generator with `self.seed + self.epoch` in `__iter__`, as DistributedSampler does.

## Versions and sources

Seen with torch 2.13 CPU. Source: torch/utils/data/distributed.py.
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
    Order,
    OrderSeen,
    Severity,
    Training,
    place,
    probe,
    same_order,
    watch,
)

from .._passes import repeated
from .._words import at, shown

if TYPE_CHECKING:
    from ddpdoctor.check import LoaderExam

AILMENT = Ailment("DDP605", Severity.WARNING)
MEND = Fix(
    "make the order depend on the epoch, each time that it is asked for",
    diff=" def __iter__(self):\n+    generator = torch.Generator().manual_seed(self.seed + self.epoch)\n"
    "+    order = torch.randperm(len(self.dataset), generator=generator).tolist()",
)
FEWEST = 6  # samples, whose order is the same twice by chance once in 720 times


@probe
def by_telling_it(loader: LoaderExam) -> Iterator[Finding]:
    """Set two epochs on the sampler and compare."""
    ranks = loader.indexed()
    sampler = ranks[0].sampler
    if sampler is None or not all(len(rank.told) > 1 for rank in ranks):
        raise NotRun("no sampler that takes an epoch")
    if sampler.shuffle is False or not all(same_order((*rank.plain, *rank.told)) for rank in ranks):
        return
    if not all(_shuffled(rank.order) for rank in ranks):
        return
    first = ranks[0]
    yield Finding(
        f"set_epoch has no effect on the order of {' in '.join(sampler.around[::-1])}",
        (
            Evidence(f"after set_epoch(1): {shown(first.told[0].indices)}", "", "rank 0's sampler"),
            Evidence(f"after set_epoch(2): {shown(first.told[1].indices)}", "another order", "rank 0's sampler"),
        ),
        MEND,
        at(loader, sampler=True),
    )


def _shuffled(order: Order) -> bool:
    """Whether an order is shuffled: it does not count up or down, and is long enough to show it."""
    return _without_pattern([index for index in order.indices if isinstance(index, int)])


def _without_pattern(numbers: list[int]) -> bool:
    return len(set(numbers)) >= FEWEST and numbers not in (sorted(numbers), sorted(numbers, reverse=True))


@watch(OrderSeen)
def while_training(event: OrderSeen, training: Training) -> Iterator[Finding]:
    """Compare the order of an epoch with that of the epoch before, where the sampler's epoch has changed."""
    last, this = repeated(event, training) or (None, None)
    if this is None or last is None or this.sampler is None or last.sampler is None:
        return
    sampler, epochs = this.sampler, (last.sampler.epoch, this.sampler.epoch)
    if None in epochs or epochs[0] == epochs[1] or sampler.number != last.sampler.number:
        return
    if not sampler.claims_to_shuffle:
        return  # it does not claim to shuffle: an order by length, say
    if not _without_pattern(list(event.indices)):
        return
    yield Finding(
        f"set_epoch has no effect on the order of {sampler.kind}",
        tuple(
            Evidence(f"at epoch {epoch}: {shown(event.indices)}", expected, f"rank {event.rank}'s sampler")
            for epoch, expected in zip(epochs, ("", "another order"), strict=True)
        ),
        MEND,
        place(this.started.drawn_at),
    )
