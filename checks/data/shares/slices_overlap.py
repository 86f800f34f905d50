"""Ranks train on samples of each other: the slices that are taken by hand overlap.

## What happens

Without a DataLoader, a script draws an order of the samples and takes its slices. Where each rank draws another order
before it takes every N-th sample of it (`torch.randperm(n)[rank::world_size]` with a seed of its own, or with none),
the slices overlap: some samples are seen by several ranks in an epoch, others by none. Where each rank goes through all
samples in an order of its own, each sample is seen N times in what is counted as one epoch. Nothing fails.

## How to be sure

ddpdoctor keeps a checksum of each row that a wrapped model is given in the first steps, where no DataLoader gives them.
Up to the first row that a rank sees again, the ranks have many rows in common, in another order. Of an iterable data
set without workers it compares the shuffled lists that `__iter__` takes a rank's part of.

## How to mend it

Draw one order on all ranks, by the epoch, and take each rank's part of it:

    order = torch.randperm(n, generator=torch.Generator().manual_seed(epoch))
    mine = order[rank::world_size]

Silent of draws with replacement, in which each rank soon meets a row again, and where there are groups of some ranks.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: torch/utils/data/distributed.py: the sampler draws one
order by `seed + epoch`, then takes `indices[rank:total_size:num_replicas]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ddpdoctor.check import (
    Ailment,
    EpochEnded,
    EpochStarted,
    Evidence,
    Finding,
    Fix,
    RowsGiven,
    Severity,
    StreamSeen,
    Training,
    place,
    watch,
)

from ..._evaluation.evaluations import shares_gradients
from .._cuts import taken_at
from .._streams import first_batches, is_shared_out, shuffled_at

AILMENT = Ailment("DDP643", Severity.WARNING)
FEWEST = 32  # rows of a rank, before one of them comes again
COMMON = 8  # rows
SHARE = 0.1  # of a rank's rows
ALL = 0.98
LAST = 5  # batch of an iterable data set


@watch(RowsGiven)
def while_training(event: RowsGiven, training: Training) -> Iterator[Finding]:
    """Compare the rows that the ranks were given before any of them came again."""
    ranks = training.complete(RowsGiven, number=event.number)
    if any(each.related for each in ranks.values()):
        return  # neighbours in a graph, which no rank trains on
    if not ranks or not all(shares_gradients(each.pid, training) for each in ranks.values()):
        return
    said = any(_overlap(training, each.number) for each in training.before(event) if each.number < event.number)
    found = _overlap(training, event.number)
    if found is None or said or any(_of_orders(each, training) for each in training.of(StreamSeen, pid=event.pid)):
        return
    one, other, common, seen = found
    if common < ALL * seen and _draws_again(training):
        return
    yield Finding(
        f"the ranks train on samples of each other: of {seen} that rank {one} was given, rank {other} was given "
        f"{common} too, in another order",
        (
            Evidence(f"{common} of {seen} rows", "none that another rank has",
                     f"ranks {one} and {other}, the first {seen} rows"),
            Evidence("no DataLoader gives them, batch by batch", "one order on all ranks, of which each takes its part",
                     str(event.site)),
        ),
        Fix(
            "draw one order on all ranks, and take each rank's part of it",
            diff="+order = torch.randperm(n, generator=torch.Generator().manual_seed(epoch))\n"
            "+mine = order[dist.get_rank() :: dist.get_world_size()]",
        ),
        place(taken_at(event.site, training, event.pid) if event.site else None),
    )  # fmt: skip


@watch(StreamSeen)
def of_a_stream(event: StreamSeen, training: Training) -> Iterator[Finding]:
    """Compare the orders that the ranks' generators go by, of which each takes its part."""
    found = _of_orders(event, training)
    if found is not None and not any(_overlap(training, each.number) for each in training.of(RowsGiven)):
        yield found


def _of_orders(event: StreamSeen, training: Training) -> Finding | None:
    """Return what is wrong with the orders that the generators of all ranks go by; None where that is nothing."""
    ranks = first_batches(event, training) if event.batch == LAST else {}
    orders = [{each[0]: each[1:] for each in told[0].orders} for told in ranks.values()]
    if event.site is None or not orders:
        return None
    for name in sorted(set.intersection(*map(set, orders))):
        found = [each[name] for each in orders]
        line = shuffled_at(event.site, name)
        differ = len({order for order, _, _ in found}) > 1 and len({members for _, members, _ in found}) == 1
        if not differ or line is None or not is_shared_out(event.site, name):
            continue
        return Finding(
            f"the ranks' parts overlap: each takes its part of {name}, which is in another order on each",
            tuple(
                Evidence(f"{order}, {length} elements", "one order on all ranks", f"rank {rank}, digest of {name}")
                for rank, (order, _, length) in zip(ranks, found, strict=True)
            )[:8],
            Fix(
                "put the whole in one order on all ranks, then take each rank's part of it",
                diff="-random.Random(seed + rank).shuffle(order)\n+random.Random(seed + epoch).shuffle(order)\n"
                " mine = order[rank::world_size]",
            ),
            place(line),
        )
    return None


def _draws_again(training: Training) -> bool:
    """Whether samples come from a stream that was not seen to end: it may give each rank some of them again."""
    streams = {each.loader for each in training.of(EpochStarted) if each.iterable and each.training}
    ended = {each.loader for each in training.of(EpochEnded) if each.complete}
    return bool(streams - ended)


def _overlap(training: Training, number: int) -> tuple[int, int, int, int] | None:
    """Return two ranks, how many rows they have in common, and of how many."""
    told = {rank: each.rows for rank, each in training.complete(RowsGiven, number=number).items()}
    if not told:
        return None
    seen = min(map(_unrepeated, told.values()))
    rows = {rank: each[:seen] for rank, each in told.items()}
    first, *others = rows
    for other in others:
        common = len(set(rows[first]) & set(rows[other]))
        aligned = sum(mine == yours for mine, yours in zip(rows[first], rows[other], strict=True))
        if seen >= FEWEST and common >= max(COMMON, SHARE * seen) and 2 * aligned < common:
            return first, other, common, seen
    return None


def _unrepeated(rows: Sequence[float]) -> int:
    """Return how many rows a rank was given before one came again."""
    seen: set[float] = set()
    for at, each in enumerate(rows):
        if each in seen:
            return at
        seen.add(each)
    return len(rows)
