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

import ast
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evaluated,
    EvaluatedByHand,
    Evidence,
    Finding,
    Fix,
    Severity,
    Site,
    Summed,
    Training,
    place,
    watch,
)

from ..._evaluation.counts import counts_ranks
from ..._evaluation.evaluations import Reduced, by_hand, evaluation, given_alike, one_number, shares_gradients, whole
from ..._evaluation.metrics import part_around
from ..._evaluation.quotients import divides
from ..._evaluation.rank_parts import is_untrained, whole_loop
from ._own_counts import added_up, quotients

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
    """Look for one number that all ranks have computed alike, to the last digit, whose sum is taken for that of parts.

    Whole numbers are counts, which ranks can have in common.
    """
    told = training.by_rank(Summed, callers=event.callers)
    numbers = [each.given for each in told.values()]
    if len(told) < training.world_size or len(told) < 2 or training.framework is not None:  # noqa: PLR2004
        return
    if None in numbers or len(set(numbers)) > 1 or (numbers[0] or 0.0).is_integer():
        return
    site = Site(*event.callers[0])
    around = part_around(site)
    names = added_up(around, site.line)
    divisors = [ast.unparse(divisor) for _, divisor in quotients(around, names, site.line)]
    if not names or not divisors or counts_ranks(around, names, site.line) or site.function == "<module>":
        return
    if not all(shares_gradients(each.pid, training) for each in told.values()) or not is_untrained(around):
        return
    yield Finding(
        f"{len(told)} ranks have computed the same number, and their sum is divided by {divisors[0]} alone: it is "
        f"{len(told)} times what it should be",
        (
            *(
                Evidence(f"{number:.9g} is given to {event.operation}", "the sum of its part", f"rank {rank}")
                for rank, number in [*zip(told, numbers, strict=True)][:8]
            ),
            Evidence(f"divided by {divisors[0]}, not by the number of ranks", "", f"{site.function}()"),
        ),
        Fix("give each rank its share of the evaluation", diff="-for x in rows:\n+for x in rows[rank::world_size]:"),
        place(whole_loop(site) or site),
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
