"""Each rank evaluates the whole data set, and the sums of all ranks are added up.

## What happens

The loader of the evaluation has no sampler that splits, so that each rank counts all samples. An all_reduce that adds
the counts up gives the world size times the right number; divided by the length of the data set, two ranks have an
accuracy of up to 200 %, and a loss that is twice as large as it is. It grows with the number of GPUs.

## How to be sure

Run the evaluation on one GPU: the metric is smaller by the number of ranks. ddpdoctor (`ddpdoctor run`) reports an
evaluation in which each rank went through the same whole data set, or was given the same rows without a loader, and one
number of each, the same on all ranks, was added up afterwards, in a function that divides by a length and not by the
number of ranks; also a number that is no whole one, the same on all ranks to the last digit, which a function without
gradients adds up and divides so. The counts that were added up as well make it right. Silent where the function takes a
part of what the model returns, as ranks do that share the nodes of one graph out.

## How to mend it

Leave the all_reduce out, or give each rank its share: `DataLoader(dataset, sampler=DistributedSampler(dataset,
shuffle=False))`.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, torch.distributed.all_reduce.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evaluated,
    EvaluatedByHand,
    Evidence,
    Finding,
    Fix,
    Severity,
    Summed,
    Training,
    place,
    watch,
)

from ..._evaluation.evaluations import Reduced, by_hand, evaluation, given_alike, one_number, whole
from ..._evaluation.quotients import divides
from ..._evaluation.rank_parts import whole_loop
from ._own_parts import cut_for_all
from ._same_numbers import same_numbers

AILMENT = Ailment("DDP625", Severity.WARNING)
FEWEST = 4  # rows


@watch(Evaluated)
def while_training(event: Evaluated, training: Training) -> Iterator[Finding]:
    """Look for an evaluation of all samples on each rank, whose one number is added up and divided by a length."""
    ranks = evaluation(event, training)
    reduced = one_number([each.told.sent for each in ranks.values()])
    if not whole(ranks) or reduced is None or reduced.reduction != "SUM":
        return
    by_length, by_ranks = divides(reduced.site)
    if not by_length or by_ranks or not given_alike([each.told for each in ranks.values()]):
        return
    first = next(iter(ranks.values()))
    yield _finding(
        len(ranks),
        f"all {first.samples} samples of {first.started.dataset}",
        Evidence(f"{first.samples} samples on each rank", "a share on each, or no all_reduce", str(event.site)),
        reduced,
        Fix(
            "give each rank its share of the evaluation",
            diff="-loader = DataLoader(dataset, batch_size=...)\n"
            "+loader = DataLoader(dataset, batch_size=..., sampler=DistributedSampler(dataset, shuffle=False))",
        ),
    )


@watch(EvaluatedByHand)
def without_a_loader(event: EvaluatedByHand, training: Training) -> Iterator[Finding]:
    """Look for rows that all ranks evaluate, whose one number is added up and divided by a length."""
    ranks = by_hand(event, training) if event.number == 1 else {}
    reduced = one_number([each.sent for each in ranks.values()])
    if len({each.rows for each in ranks.values()}) != 1 or reduced is None or reduced.reduction != "SUM":
        return
    if reduced.from_indexed_result() or not given_alike([*ranks.values()]):
        return  # a graph, say, of which each rank counts other nodes
    if cut_for_all(event.callers) is not None:
        return  # not the whole
    by_length, by_ranks = divides(reduced.site)
    if not by_length or by_ranks or len(event.rows) < FEWEST:
        return
    file, line, _ = event.callers[0]
    yield _finding(
        len(ranks),
        "the same rows",
        Evidence(f"{len(event.rows)} rows or more, the same on each rank", "a share on each, or no all_reduce",
                 f"{file}:{line}"),
        reduced,
        Fix("give each rank its share of the evaluation", diff="-for x in rows:\n+for x in rows[rank::world_size]:"),
    )  # fmt: skip


@watch(Summed)
def of_the_same_numbers(event: Summed, training: Training) -> Iterator[Finding]:
    """Look for a number that all ranks have computed alike, and whose sum is taken for that of parts."""
    same = same_numbers(event, training)
    if same is None or same.cut is not None:
        return
    ranks = len(same.numbers)
    yield Finding(
        f"{ranks} ranks have computed the same number, and their sum is divided by {same.divisor} alone: it is "
        f"{ranks} times what it should be",
        same.evidence(event),
        Fix("give each rank its share of the evaluation", diff="-for x in rows:\n+for x in rows[rank::world_size]:"),
        place(whole_loop(same.site) or same.site),
    )


def _finding(ranks: int, what: str, seen: Evidence, reduced: Reduced, fix: Fix) -> Finding:
    return Finding(
        f"each of {ranks} ranks evaluates {what}, and their sums are added up: the metric is {ranks} times what it "
        "should be",
        (
            seen,
            Evidence("all_reduce adds up one number of each rank", "", str(reduced.site)),
            Evidence("divided by a length, not by the number of ranks", "", f"{reduced.site.function}()"),
        ),
        fix,
        place(reduced.site),
    )
