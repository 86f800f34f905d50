"""Evaluation counts some samples twice.

## What happens

A DistributedSampler gives each rank the same number of samples. If the data set cannot be divided by the world size,
it repeats its first samples to fill up. In training that does no harm. In an evaluation the repeated samples count
twice, and the result depends on the number of GPUs. It is a note, since a handful of samples seldom matters.

## How to be sure

Compare the number of samples that all ranks evaluated with the length of the data set. ddpdoctor counts the indices
of all ranks where the sampler does not shuffle. In a running training (`ddpdoctor run`) it reports an evaluation by a
DistributedSampler that fills up, after which sums are reduced, and nothing is gathered that could be cut.

So of parts that the script lists itself, a Subset or a list as a sampler, at equal steps: it is a warning where they
overlap by more than a tenth, or are one for all ranks though the source cuts by their number
(`range(0, len(dataset), world_size)`), and something is then reduced or gathered. The same without a loader, where all
ranks give the model the same rows between `model.eval()` and the next step, or have computed the same number, in a
function that cuts by the number of ranks and never by the rank. So is a cut by the rank that ends, by a quotient with
the number of ranks, before the samples do (`range(rank, len(dataset) // world_size, world_size)`). And a number that
all ranks have computed alike, and reduce, in a function that draws its samples by a generator that it seeds alike on
all ranks.

## How to mend it

Drop the surplus after gathering (`accelerator.gather_for_metrics` does), or give each rank its share without padding,
`Subset(dataset, range(rank, len(dataset), world_size))`, and sum both the hits and the counts with all_reduce.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, DistributedSampler,
`drop_last`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Evaluated,
    EvaluatedByHand,
    Evidence,
    Finding,
    Fix,
    NotRun,
    Severity,
    Site,
    Summed,
    Training,
    compare_shares,
    place,
    probe,
    watch,
)

from ..._evaluation.evaluations import by_hand, evaluation, sharded, shares_gradients
from ..._evaluation.metrics import part_around
from ..._evaluation.rank_parts import is_untrained
from .._words import at, counted, shown
from ._left_out import LeftOut, left_out
from ._own_parts import cut_for_all, is_one_for_all, overlap, own_parts
from ._same_draws import same_draws
from ._same_numbers import same_numbers

if TYPE_CHECKING:
    from ddpdoctor.check import LoaderExam

AILMENT = Ailment("DDP612", Severity.NOTE)
FEWEST = 4  # rows
MEND = Fix(
    "evaluate each sample once",
    diff="-loader = DataLoader(dataset, sampler=DistributedSampler(dataset, shuffle=False), ...)\n"
    "+share = Subset(dataset, range(dist.get_rank(), len(dataset), dist.get_world_size()))\n"
    "+loader = DataLoader(share, ...)",
)


@probe
def by_counting(loader: LoaderExam) -> Iterator[Finding]:
    """Count what comes twice where the sampler does not shuffle."""
    loader.several()
    ranks = loader.indexed()
    sampler, length = ranks[0].sampler, ranks[0].length
    if sampler is None or sampler.replicas != len(ranks) or sampler.shuffle is not False:
        raise NotRun("no sampler that splits by rank and does not shuffle")
    if not length or not all(rank.order.complete for rank in ranks) or len({rank.length for rank in ranks}) > 1:
        return
    if sorted(rank.sampler.rank or 0 for rank in ranks if rank.sampler is not None) != list(range(len(ranks))):
        return
    shares = compare_shares([rank.samples() for rank in ranks])
    if not 0 < shares.extra < len(ranks) or shares.distinct < length:
        return
    yield Finding(
        f"{counted(shares.extra, 'sample')} of {length} {'counts' if shares.extra == 1 else 'count'} twice: "
        f"{length} cannot be divided by {len(ranks)} ranks",
        (
            Evidence(f"{length + shares.extra} samples on all ranks together", f"{length}", "samplers"),
            Evidence(f"on two ranks: {shown(shares.repeated)}", "no sample on two ranks", "samplers"),
        ),
        MEND,
        at(loader, sampler=True),
    )


@watch(Evaluated)
def while_training(event: Evaluated, training: Training) -> Iterator[Finding]:
    """Look for an evaluation whose sampler fills up, and whose sums are then reduced."""
    ranks = evaluation(event, training)
    first = next(iter(ranks.values()), None)
    if first is None or not sharded(ranks) or any(each.started.drop_last for each in ranks.values()):
        return
    if any(
        sampler is None or sampler.kind != "DistributedSampler" or sampler.drop_last
        for sampler in (each.started.sampler for each in ranks.values())
    ):
        return
    length, extra = first.started.length or 0, -(first.started.length or 0) % len(ranks)
    operations = {operation for each in ranks.values() for operation, *_ in each.told.sent}
    if not extra or not operations or operations - {"all_reduce", "reduce"}:
        return
    yield Finding(
        f"{counted(extra, 'sample')} of {length} {'counts' if extra == 1 else 'count'} twice: "
        f"{length} cannot be divided by {len(ranks)} ranks",
        (
            Evidence(f"{sum(each.samples or 0 for each in ranks.values())} samples on all ranks together", f"{length}",
                     "samplers"),
            Evidence("their sums are reduced", "the surplus left out", f"after the loop of {event.site}"),
        ),
        MEND,
        place(event.site),
    )  # fmt: skip


@watch(Evaluated)
def of_lists(event: Evaluated, training: Training) -> Iterator[Finding]:
    """Look for parts that the script has listed for its ranks, and that overlap, or are one for all."""
    ranks = evaluation(event, training)
    parts = own_parts(ranks, training)
    made = next((each.started.made for each in ranks.values()), None)
    operations = {operation for each in ranks.values() for operation, *_ in each.told.sent}
    if not parts or made is None or not operations:
        return
    twice = overlap(parts)
    same = not twice and is_one_for_all(parts, made)
    if not twice and not same:
        return
    said = (
        f"{len(parts)} ranks evaluate one part of the samples, cut by their number: the rest is never evaluated"
        if same
        else f"the parts that the ranks evaluate overlap: {counted(twice, 'sample')} or more count twice"
    )
    yield Finding(
        said,
        tuple(
            Evidence(
                f"evaluates {shown(tuple(sorted(each.indices)))}",
                "no sample that another rank evaluates",
                f"rank {rank}",
            )
            for rank, each in [*parts.items()][:8]
        ),
        MEND,
        place(made),
        severity=Severity.WARNING,
    )


@watch(EvaluatedByHand)
def without_a_loader(event: EvaluatedByHand, training: Training) -> Iterator[Finding]:
    """Look for rows that all ranks evaluate, of a part that is cut by their number alone."""
    ranks = by_hand(event, training) if event.number == 1 else {}
    rows = {each.rows for each in ranks.values()}
    cut = cut_for_all(event.callers) if len(rows) == 1 and len(set(event.rows)) >= FEWEST else None
    if cut is not None and event.sent:
        file, line, _ = event.callers[0]
        told = f"{len(event.rows)} rows or more, the same on each rank"
        yield _one_part(len(ranks), (Evidence(told, "other rows on each rank", f"{file}:{line}"),), cut)


@watch(Summed)
def of_the_same_numbers(event: Summed, training: Training) -> Iterator[Finding]:
    """Look for a number that all ranks have computed alike, of a part that is cut by their number alone."""
    same = same_numbers(event, training)
    if same is not None and same.cut is not None:
        yield _one_part(len(same.numbers), same.evidence(event), same.cut)


@watch(Evaluated)
def of_short_parts(event: Evaluated, training: Training) -> Iterator[Finding]:
    """Look for parts of a loader's samples that are cut by the rank, and that leave samples out."""
    ranks = evaluation(event, training)
    made = {each.started.made for each in ranks.values()}
    site = made.pop() if len(made) == 1 else None
    found = left_out([site], len(ranks), at_line=True) if site is not None else None
    if found is not None and own_parts(ranks, training):
        yield _short(found, len(ranks))


@watch(Summed)
def of_short_parts_by_hand(event: Summed, training: Training) -> Iterator[Finding]:
    """Look for such parts in a function without gradients that adds up over the ranks."""
    if event.rank != 0 or training.framework is not None or not shares_gradients(event.pid, training):
        return
    sites = [Site(*each) for each in event.callers]
    found = left_out([each for each in sites if is_untrained(part_around(each))], training.world_size, at_line=False)
    if found is not None:
        yield _short(found, training.world_size)


def _short(found: LeftOut, ranks: int) -> Finding:
    return Finding(
        f"{found.share:.0%} of the samples are evaluated by no rank: the parts of {ranks} ranks end before they do",
        (Evidence(found.text, "all samples, each on one rank", f"{found.site.file}:{found.site.line}"),),
        Fix("take every world-size-th sample", diff="+mine = rows[rank::world_size]"),
        place(found.site),
        severity=Severity.WARNING,
    )


@watch(Summed)
def of_the_same_draws(event: Summed, training: Training) -> Iterator[Finding]:
    """Look for a number that all ranks have computed alike, of what they have drawn alike."""
    same = same_draws(event, training)
    if same is not None:
        yield Finding(
            f"{len(same.numbers)} ranks evaluate the same draws, and have computed the same number: to reduce it adds "
            "nothing",
            same.evidence(event),
            Fix(
                "seed with the rank as well, or leave out the reduction",
                diff=f"-{same.seed}\n+{_with_rank(same.seed)}",
            ),
            place(same.site),
        )


def _with_rank(seed: str) -> str:
    """Return a call that seeds, with the rank in its seed."""
    return f"{seed[:-1]} + 1000 * dist.get_rank())"


def _one_part(ranks: int, proof: tuple[Evidence, ...], cut: Site) -> Finding:
    return Finding(
        f"{ranks} ranks evaluate one part of the samples, cut by their number: the rest is never evaluated",
        proof,
        Fix(
            "cut by the rank as well",
            diff="-mine = rows[: len(rows) // world_size]\n+mine = rows[rank::world_size]",
        ),
        place(cut),
        severity=Severity.WARNING,
    )
