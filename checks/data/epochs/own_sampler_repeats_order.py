"""What the script draws its order with, a sampler of its own or a line, draws the same one in every epoch.

## What happens

A sampler, or batch sampler, that the script defines seeds its generator with a number that never changes, so that all
ranks draw one order and each takes its part. Drawn anew in each epoch from the same seed, it is the same order: each
epoch has the same batches, on the same ranks, in the same places. Nothing fails, and the shuffle has no effect after
the first epoch. Where no loader gives the samples, the same comes of a permutation that is drawn once, before the loop
over epochs, or in it from one seed.

## How to be sure

ddpdoctor compares the orders of epochs that train: here two complete ones had the same, which is neither ascending nor
descending, and `__iter__` of the sampler's class makes or seeds a generator. Of rows that no loader gives it compares
checksums, over two epochs or more, and reads where the script draws a permutation; of an iterable data set without
workers, the shuffled list that its `__iter__` goes by, and what it reads, in three passes; of one with workers, the
first batches of three passes, where a method of its class shuffles. Print the first indices of
each epoch.

## How to mend it

Seed with the epoch, and tell the sampler the epoch, as DistributedSampler does:

    generator = torch.Generator().manual_seed(self.seed + self.epoch)  # in __iter__
    sampler.epoch = epoch  # first in the loop over epochs

Silent where set_epoch was called with another number (set-epoch-ignored looks at that), and where the class is defined
in another file than the loop.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: torch/utils/data/distributed.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    OrderSeen,
    Place,
    RowsGiven,
    Severity,
    StreamSeen,
    Training,
    place,
    watch,
)

from ..._evaluation.evaluations import shares_gradients
from .._lines import epoch_loop
from .._passes import repeated
from .._streams import alike, passes, shuffled_at
from .._words import shown
from ._iterables import repeated_by_workers
from ._permutations import drawn_once
from ._seeds import says_epoch, seeded, told

AILMENT = Ailment("DDP644", Severity.WARNING)
FEWEST = 32  # rows of an epoch
PASSES, LAST = 3, 2
FORWARDS = 4  # of an epoch: all samples at once have no order
SEEDED = Fix(
    "seed with the epoch, and tell the sampler the epoch",
    diff="-generator = torch.Generator().manual_seed(self.seed)\n"
    "+generator = torch.Generator().manual_seed(self.seed + self.epoch)\n"
    " for epoch in range(epochs):\n+    sampler.epoch = epoch",
)


@watch(OrderSeen)
def while_training(event: OrderSeen, training: Training) -> Iterator[Finding]:
    """Compare the order of an epoch with that of the epoch before, of a sampler that the script defines."""
    last, this = repeated(event, training) or (None, None)
    if this is None or last is None or this.sampler is None or last.sampler is None or event.site is None:
        return
    epochs = last.sampler.epoch, this.sampler.epoch
    is_told = None not in epochs and epochs[0] != epochs[1]
    numbers = list(event.indices)
    if (is_told and this.sampler.claims_to_shuffle) or numbers in (sorted(numbers), sorted(numbers, reverse=True)):
        return  # of one that is told the epoch, and claims to shuffle, another check speaks
    line = seeded(event.site.file, this.sampler.kind)
    if line is None or (is_told and says_epoch(event.site.file, line)):
        return
    knows_epoch = says_epoch(event.site.file, line) and epoch_loop(this.started) is not None
    yield Finding(
        f"every epoch has the same order: {this.sampler.kind} draws it from the same seed",
        (
            Evidence(f"passes {last.order.number} and {event.number} both begin {shown(event.indices)}", "two orders",
                     f"rank {event.rank}"),
            Evidence("its generator is seeded anew in each pass", "a seed that holds the epoch",
                     f"{event.site.file}:{line}"),
        ),
        told(event.site.file, this.sampler.kind) if knows_epoch else SEEDED,
        place(epoch_loop(this.started)) if knows_epoch else Place(file=event.site.file, line=line),
    )  # fmt: skip


@watch(RowsGiven)
def by_hand(event: RowsGiven, training: Training) -> Iterator[Finding]:
    """Look for rows that come again in the order in which they came, where a line of the script has permuted them."""
    ranks = training.complete(RowsGiven, number=event.number)
    periods = {_period(each) for each in ranks.values()}
    if event.site is None or len(periods) != 1 or not (period := periods.pop()):
        return
    said = any(_period(each) for each in training.before(event) if each.number < event.number)
    line = None if said else drawn_once(event.site.file, event.site.line)
    if line is None or not all(shares_gradients(each.pid, training) for each in ranks.values()):
        return
    epochs = len(event.rows) // period
    yield Finding(
        f"every epoch has the same order: {line.call} is drawn {line.how}",
        (
            Evidence(f"the {period} rows of the first epoch came {epochs} times, in one order",
                     "another order each time", f"all ranks, the first {event.number} steps"),
            Evidence(line.call, "drawn anew in each epoch", f"{event.site.file}:{line.number}"),
        ),
        Fix(
            "draw the order in the loop over epochs, with a seed that holds the epoch and is the same on all ranks",
            diff=" for epoch in range(epochs):\n"
            "+    order = torch.randperm(n, generator=torch.Generator().manual_seed(epoch))\n"
            "+    mine = order[dist.get_rank() :: dist.get_world_size()]",
        ),
        Place(file=event.site.file, line=line.number),
    )  # fmt: skip


@watch(StreamSeen)
def of_a_stream(event: StreamSeen, training: Training) -> Iterator[Finding]:
    """Look for an iterable data set that goes by one shuffled order in each pass, and so gives the same samples."""
    made = passes(event, training)
    if event.batch != LAST or len(made) != PASSES or event.site is None or event not in made[-1]:
        return
    orders = [{(name, digest) for name, digest, *_ in each[0].orders} for each in made]
    same = sorted(name for name, _ in set.intersection(*orders))
    read = [[each.held for each in batches[:LAST]] for batches in made]
    line = next((found for name in same if (found := shuffled_at(event.site, name))), None)
    if line is None or not all(alike(batches) for batches in zip(*read, strict=True)):
        return
    yield Finding(
        f"every epoch has the same order: {event.site.function} draws {same[0]} from the same seed each time",
        (
            Evidence(f"{same[0]} is in one order in {PASSES} passes, and the first samples are the same",
                     "another order each time", f"rank {event.rank}"),
        ),
        Fix(
            "seed with the epoch, and tell the data set the epoch",
            diff="-random.Random(self.seed).shuffle(order)\n+random.Random(self.seed + self.epoch).shuffle(order)\n"
            " for epoch in range(epochs):\n+    data.epoch = epoch",
        ),
        place(line),
    )  # fmt: skip


@watch(OrderSeen)
def of_workers(event: OrderSeen, training: Training) -> Iterator[Finding]:
    """Look for an iterable data set whose workers give the same batches in each pass, though it shuffles."""
    found = repeated_by_workers(event, training)
    if found is None or event.rank != 0 or training.framework is not None:
        return
    loop = epoch_loop(found.started) if found.knows_epoch else None
    yield Finding(
        f"every epoch has the same order: {found.started.dataset} shuffles with the same seed in each pass",
        (
            Evidence(f"the first {len(found.digests)} batches are the same in {event.number + 1} passes",
                     "other ones each time", f"rank {event.rank}, the loop of {event.site}"),
            Evidence("shuffles here", "a seed that is another one in each epoch", str(found.line)),
        ),
        Fix("tell the data set the epoch", diff=" for epoch in range(epochs):\n+    dataset.set_epoch(epoch)")
        if found.knows_epoch
        else SEEDED,
        place(loop or found.line),
    )  # fmt: skip


def _period(event: RowsGiven) -> int:
    """Return after how many rows, of several forwards, all come again in the same order; 0 where they do not."""
    rows = event.rows
    found = next((at for at in range(FEWEST, len(rows) // 2 + 1) if rows[at:] == rows[:-at]), 0)
    several = found * event.forwards >= FORWARDS * len(rows)
    differ = 2 * len(set(rows[:found])) > found
    return found if several and differ else 0
