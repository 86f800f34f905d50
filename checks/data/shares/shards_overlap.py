"""The ranks' shares overlap, or leave samples out.

## What happens

Each rank is to have a share that no other rank has, and together they are to be the whole data set. Shares overlap
where each rank shuffles by itself before it takes its part, where the ranks see data sets of different lengths, or
where a sampler of one's own cuts wrongly. Samples on two ranks count twice in the gradient, others never.

## How to be sure

Gather the indices of an epoch from all ranks and count them. ddpdoctor does that, and fetches a few samples to see
that an index means the same on each rank. Up to world size minus one samples that fill up the last round are right
(DistributedSampler pads), or a batch for each rank with samplers that pad batches.

A sampler of one's own that holds its rank and the number of ranks by other names is looked at where it draws that
share of all there is, none twice, from generators that it or the factory seeds.

In a running training (`ddpdoctor run`) what the ranks drew in a whole pass is compared, for samplers of one's own that
say that they split, by their attributes or since their code speaks of a rank and of the number of ranks and each draws
its share of all there is; without such a sampler the indices of the ranks' Subsets, or the lists that their data sets
hold, up to 64 entries of each, chosen by a hash that is the same on all ranks. A sampler whose code speaks of ranks and
that gives all of them the same samples in the same order is named as soon as that shows.

A sampler of one's own can repeat samples on purpose (repeated augmentation): then it is a warning. Samples that no
rank has are a note, since a split for validation looks the same.

## How to mend it

Permute with the same seed on all ranks, then take `order[rank::world_size]`. Where the sampler's own code has the rank
in a seed, the fix is that line without it.

## Versions and sources

Seen with torch 2.13 CPU. Source: torch/utils/data/distributed.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    EpochEnded,
    Evidence,
    Finding,
    Fix,
    NotRun,
    OrderSeen,
    Sampler,
    Severity,
    Training,
    compare_shares,
    place,
    probe,
    watch,
)

from .._passes import RankPass, same_data, same_pass, splitting
from .._words import SHOWN, at, counted, shown
from ._cut import cut_by_rank, cut_from_orders
from ._seeds import seed_with_rank
from ._shares import (
    MANY,
    MEND,
    SLACK,
    at_other_times,
    few_are_shared,
    missing_samples,
    overlap,
    padding,
    split_by_rank,
    split_in_its_own_way,
    without_rank,
)

if TYPE_CHECKING:
    from ddpdoctor.check import LoaderExam

AILMENT = Ailment("DDP606", Severity.ERROR)


@probe
def by_counting(loader: LoaderExam) -> Iterator[Finding]:
    """Count on how many ranks each index occurs."""
    loader.several()
    ranks = loader.indexed()
    drawn = [rank.samples() for rank in ranks]
    shares = compare_shares(drawn)
    says = split_by_rank(ranks)
    if cut_by_rank(ranks):
        if found := cut_from_orders(loader, compare_shares([rank.subset or () for rank in ranks])):
            yield found
        return
    if not says and not split_in_its_own_way(ranks):
        raise NotRun("no sampler that splits by rank in the right way")
    if loader.same_data() is False:
        return
    meant = not says and (few_are_shared(shares) or not at_other_times(drawn))
    if len(shares.repeated) > padding(ranks) and not meant:
        yield overlap(loader, shares)
    elif missing := missing_samples(ranks):
        yield Finding(
            f"{counted(len(missing), 'sample')} of {ranks[0].length} are in no rank's share, in four epochs",
            (Evidence(f"never drawn: {shown(missing)}", "each sample on one rank", "all ranks' samplers"),),
            Fix("take order[rank::world_size] of the whole order", diff="+share = order[rank::world_size]"),
            at(loader, sampler=True),
            severity=Severity.NOTE,
        )


@watch(EpochEnded)
def while_training(event: EpochEnded, training: Training) -> Iterator[Finding]:
    """Compare what the ranks drew in a whole pass with a sampler of one's own, which says that it splits."""
    ranks = same_pass(event, training)
    samplers = splitting(ranks) or _of_ones_own(ranks)
    drawn = {rank: each.ended.drawn for rank, each in ranks.items() if each.ended and each.ended.all_drawn}
    if not samplers or len(drawn) < len(ranks) or same_data(ranks) is False:
        return
    if any(sampler.kind == "DistributedSampler" or sampler.replacement for sampler in samplers.values()):
        return
    shares = compare_shares(list(drawn.values()))
    if any(len(set(each)) < len(each) or not each for each in drawn.values()):
        return  # a sampler that repeats samples on one rank does so on purpose
    if few_are_shared(shares) or not at_other_times(list(drawn.values())):
        return
    looked = "" if event.stride == 1 else f" of those whose index is a multiple of {event.stride}"
    sampler, where = next(iter(samplers.values())), place(next(iter(ranks.values())).started.drawn_at)
    seed = seed_with_rank(where.file, sampler.kind) if where.file else None
    yield Finding(
        f"the shares of {sampler.kind} overlap: each rank shuffles by itself",
        (
            Evidence(
                f"{counted(len(shares.repeated), 'sample')} on several ranks{looked}", "none", "all ranks, one pass"
            ),
            *(Evidence(shown(each), "", f"rank {rank}'s sampler") for rank, each in drawn.items()),
        ),
        without_rank(seed),
        replace(where, line=seed.line) if seed else where,
    )


@watch(OrderSeen)
def one_share(event: OrderSeen, training: Training) -> Iterator[Finding]:
    """Look for a sampler of the script's own that gives all ranks the same samples, in the same order."""
    ranks = same_pass(event, training)
    samplers = [each.sampler for each in ranks.values()]
    orders = {each.order.indices for each in ranks.values()}
    if not ranks or len(orders) > 1 or len(set(event.indices)) < TELLING or same_data(ranks) is False:
        return
    if any(each is None or each.kind == "DistributedSampler" or not each.splits for each in samplers):
        return
    if event.number or any(each.started.subgroups for each in ranks.values()):
        return
    kind = next(each.kind for each in samplers if each is not None)
    yield Finding(
        f"{kind} gives all {len(ranks)} ranks the same samples in the same order",
        tuple(
            Evidence(shown(each.order.indices), "a share of its own", f"rank {rank}'s sampler")
            for rank, each in ranks.items()
        )[:SHOWN],
        MEND,
        place(next(iter(ranks.values())).started.drawn_at),
    )


def _of_ones_own(ranks: dict[int, RankPass]) -> dict[int, Sampler]:
    """Return the samplers of a class that speaks of ranks, where together they draw about as much as there is."""
    found = {rank: each.sampler for rank, each in ranks.items() if each.sampler is not None and each.sampler.splits}
    claims = any(each.replicas is not None for each in found.values())
    numbers = {rank: len(each.ended.drawn) * each.ended.stride for rank, each in ranks.items() if each.ended}
    length = min((each.started.length or 0 for each in ranks.values()), default=0)
    shares = all(abs(number * len(ranks) - length) <= SLACK * length for number in numbers.values())
    return found if len(found) == len(ranks) and not claims and shares else {}


@watch(OrderSeen)
def cut_by_hand(event: OrderSeen, training: Training) -> Iterator[Finding]:
    """Compare the Subset, or the list of files, that each rank has cut for itself, where no sampler splits."""
    ranks = same_pass(event, training)
    data = {rank: each.data for rank, each in ranks.items() if each.data is not None and each.data.least}
    if (
        not data
        or len(data) < len(ranks)
        or any(each.sampler and (each.sampler.replicas or each.sampler.shares) for each in ranks.values())
    ):
        return
    if len({(each.name, each.base) for each in data.values()}) > 1 or any(
        each.picks and not each.base for each in data.values()
    ):
        return  # shares of different data, or of what cannot be told
    (one, first), *others = data.items()
    common, other = max((len(set(first.least) & set(each.least)), rank) for rank, each in others)
    looked = min(len(first.least), len(data[other].least))
    if looked < TELLING or not MANY <= common / looked < SAME:
        return
    kind = "Subset" if first.picks else f"list {first.name}"
    yield Finding(
        f"the shares that the ranks have cut for themselves overlap: {common} of {looked} entries of rank {one}'s "
        f"{kind} that were looked at are rank {other}'s as well",
        tuple(
            Evidence(f"begins {', '.join(each.first)}", "entries that no other rank has", f"rank {rank}'s {kind}")
            for rank, each in data.items()
        )[:SHOWN],
        Fix(
            "bring the whole into one order on all ranks, then take each its part",
            diff="-random.shuffle(files)\n+files = sorted(files)\n+random.Random(0).shuffle(files)\n"
            " mine = files[rank::world_size]",
        ),
        place(next(iter(ranks.values())).started.made),
        severity=Severity.WARNING,
    )


TELLING = 8  # entries: fewer tell nothing
SAME = 0.98  # of the entries: the ranks have the same data, which another check tells
