"""What the loaders of all ranks draw together: repeated, missing, filled up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    Place,
    Severity,
    Shares,
    Table,
    each_two,
    shared_part,
)

from .._words import at, counted, shown
from ._seeds import RankSeed, seed_with_rank

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddpdoctor.check import Index, LoaderExam, RankLoader

SLACK = 0.2  # of the data set: what a sampler leaves out at the end, or fills up
MANY = 0.2  # of the samples that were drawn: ranks that shuffle by themselves have a quarter to two fifths in common
APART = 0.1  # of a pass: a sample that is repeated on purpose comes to the ranks at about the same time

MEND = Fix(
    "permute with the same seed on all ranks, then take each its part",
    diff="+generator = torch.Generator().manual_seed(self.seed + self.epoch)  # the same on all ranks\n"
    "+order = torch.randperm(len(dataset), generator=generator).tolist()\n+share = order[rank::world_size]",
)


SPLIT = Fix(
    "split alike on all ranks: with a generator of one seed, which has nothing of the rank in it",
    diff="-train, held_out = random_split(dataset, lengths)\n"
    "+train, held_out = random_split(dataset, lengths, generator=torch.Generator().manual_seed(0))",
)


def split_by_rank(ranks: tuple[RankLoader, ...]) -> bool:
    """Whether a sampler splits, by the right numbers and one seed; other checks report where it does not."""
    samplers = [rank.sampler for rank in ranks]
    right = all(s is not None and s.replicas == len(ranks) and s.rank == at for at, s in enumerate(samplers))
    return right and len({s.seed for s in samplers if s is not None}) == 1


def split_in_its_own_way(ranks: tuple[RankLoader, ...]) -> bool:
    """Whether a sampler that holds the rank and the number of ranks draws that share of all there is.

    No rank draws a sample twice, and the ranks' orders have nothing to do with how the training seeds them.
    """
    length = ranks[0].length
    if not length or not all(rank.takes_share and not rank.order_of_process for rank in ranks):
        return False
    orders = [order for rank in ranks for order in rank.plain]
    drawn = sum(len(rank.order.indices) for rank in ranks)
    twice = [len(order.indices) - len(set(order.indices)) for order in orders]
    samplers = [rank.sampler for rank in ranks]
    return (
        not any(each is None or each.replacement or each.replicas is not None for each in samplers)
        and all(order.complete for order in orders)
        and not any(twice)
        and abs(drawn - length) <= SLACK * length
    )


def few_are_shared(shares: Shares) -> bool:
    """Whether too few samples came to several ranks for orders that have nothing to do with each other."""
    return len(shares.repeated) < MANY * shares.distinct


def at_other_times(drawn: Sequence[Sequence[Index]]) -> bool:
    """Whether the samples that two ranks have in common came to them at unrelated times of the pass."""
    one, other = ({index: at / len(each) for at, index in enumerate(each)} for each in drawn[:2])
    both = [abs(one[index] - other[index]) for index in one.keys() & other.keys()]
    return bool(both) and sum(both) / len(both) > APART


def without_rank(seed: RankSeed | None) -> Fix:
    """Return how all ranks come to one order: by one seed where the rank is part of it, else by a seed."""
    if seed is None:
        return MEND
    return Fix(
        "leave the rank out of the seed, so that all ranks cut the same order",
        diff=f"-{seed.before}\n+{seed.after}",
    )


def padding(ranks: tuple[RankLoader, ...]) -> int:
    """Return how many samples fill up the last round at most."""
    sampler = ranks[0].sampler
    if sampler is not None and sampler.standard:
        return len(ranks) - 1
    return len(ranks) * max(1, *(rank.order.sizes[0] if rank.order.sizes else 1 for rank in ranks))


def missing_samples(ranks: tuple[RankLoader, ...]) -> tuple[int, ...]:
    """Return what no rank has in any epoch, if it is more than a batch on each rank."""
    orders = [order for rank in ranks for order in (*rank.plain, *rank.told)]
    length = ranks[0].length
    if (
        not length
        or ranks[0].subset
        or not all(order.complete for order in orders)
        or any(rank.drop_last for rank in ranks)
    ):
        return ()
    drawn = {index for order in orders for index in order.indices}
    if not all(isinstance(index, int) and 0 <= index < length for index in drawn):
        return ()
    missing = tuple(index for index in range(length) if index not in drawn)
    return missing if len(missing) > padding(ranks) else ()


def overlap(loader: LoaderExam, shares: Shares) -> Finding:
    """Return what tells that shares overlap, with the seed that has the rank in it where the source shows one."""
    ranks = loader.ranks
    kind, file, line = ranks[0].draws_at
    seed = seed_with_rank(file, kind) if file else None
    sampler = ranks[0].sampler
    own = sampler is None or not sampler.standard
    identical = len({rank.samples() for rank in ranks}) == 1
    ambiguity, severity = None, None
    if len({rank.subset for rank in ranks}) > 1:
        severity = Severity.NOTE
        ambiguity = Ambiguity(
            (
                "random_split without a generator, or with one seeded by the rank: each rank has a split of its own",
                "the training seeds all ranks alike before it builds the loader",
            ),
            f"grep -n 'random_split\\|seed' {loader.file or '*.py'}",
        )
    elif own and not identical:
        severity = Severity.WARNING
        ambiguity = (
            None
            if seed
            else Ambiguity(
                ("each rank shuffles by itself", "samples are repeated on purpose, such as repeated augmentation"),
                "python -c 'from torch.utils.data import DistributedSampler; help(DistributedSampler)'",
            )
        )
    seen = "" if all(rank.order.complete for rank in ranks) else f" (of the first {shares.read} that were read)"
    return Finding(
        f"{counted(len(shares.repeated), 'sample')} reached more than one rank in one epoch{seen}",
        (
            Evidence(
                f"on several ranks: {shown(shares.repeated)}", f"{padding(ranks)} at most, to fill up", "all ranks"
            ),
            Evidence(
                f"{shares.distinct} different samples of {ranks[0].length}", f"{ranks[0].length}", "all ranks together"
            ),
            *(Evidence(shown(rank.samples()), "", f"rank {rank.rank}'s sampler") for rank in ranks),
        ),
        SPLIT if len({rank.subset for rank in ranks}) > 1 else without_rank(seed),
        Place(file=file, line=seed.line if seed else line) if file else at(loader, sampler=True),
        severity=severity,
        table=Table(
            ("ranks", "samples in both", "part"),
            tuple(
                (
                    f"{one.rank} and {other.rank}",
                    len(set(one.samples()) & set(other.samples())),
                    f"{shared_part(set(one.samples()), set(other.samples())):.0%}",
                )
                for one, other in each_two(ranks)
            ),
        ),
        ambiguity=ambiguity,
    )
