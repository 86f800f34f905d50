"""What the ranks step with is the same on all, and not the mean of their gradients.

## What happens

N ranks on N shares are to do what one process does on the whole: step with the mean of what they have computed. An
exchange by hand, or a communication hook, can give something else to all of them alike, so that the replicas stay equal
and nothing shows: the sum (the learning rate is N times as high), the mean divided by N once more, one rank's gradient
for all (the other ranks compute in vain), the largest of each element.

## How to be sure

ddpdoctor takes linear fingerprints of each gradient in sampled steps, right after backward and right before the step,
on each rank: which multiple of the ranks' mean it is, or of one rank's, can be computed from them.

A sum is right where the loss is divided by the number of ranks before, or summed over samples: nothing is said where
the script divides by a number of ranks or samples, or sums its loss; where the graph of each loss shows that it is a
mean, nothing is said where a learning rate is divided. Clipping, scaling of the loss and other changes
that are alike on all ranks are not reported. Where no optimizer of torch's steps, the first two updates are looked at,
and nothing is said where the script divides by a number of ranks anywhere.

## How to mend it

    dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
    parameter.grad /= dist.get_world_size()

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "Distributed Data Parallel",
internal design, and "DDP Communication Hooks".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    OthersFingerprinted,
    Place,
    Severity,
    StepFingerprinted,
    Training,
    WeightsFingerprinted,
    place,
    watch,
)

from ...._ledgers.ledger import sheets
from ...._ledgers.updates import TOLD, updates
from ...._ledgers.wordings import line_of, norms
from ...._scripts.own_files import is_said
from ..._owners import shared_out
from ._multiples import FIX, NORMALISED, ONCE, SLOWER, SUMMED, all_are, clipped_to, mixed, multiple, times, twice

if TYPE_CHECKING:
    from ...._ledgers.sheets import Sheet

AILMENT = Ailment("DDP571", Severity.ERROR)
SURE = 2


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Compare what all ranks were given with the mean of what they have computed."""
    steps = sheets(event, training)[-SURE:]
    if event.number >= SURE and not any(each.is_parallel_otherwise for each in steps):
        yield from _compared(steps, _said)


@watch(OthersFingerprinted)
def shared_out_by_hand(event: OthersFingerprinted, training: Training) -> Iterator[Finding]:
    """Compare what the rank that steps a parameter was given with the mean of what all have computed."""
    yield from _compared([each.sheet for each in shared_out(event, training, SURE)[-SURE:]], multiple)


@watch(WeightsFingerprinted)
def without_optimizer(event: WeightsFingerprinted, training: Training) -> Iterator[Finding]:
    """Look at the updates of a script that has no optimizer of torch's."""
    steps = updates(training) if event.number == TOLD[-1] else []
    if not steps:
        return
    ranks = len(steps[-1].ranks)
    for each in steps:
        times = [each.times_mean(line) for line in each.lines_that_tell]
        if not times or not all_are(times, ranks):
            return
    sent = [each for each in steps[-1].exchanges if each.what == "gradient"]
    files = {event.site.file if event.site else "", *(each.file for each in sent)}
    losses = [loss for step in steps for each in step.ranks.values() for loss in each.terms]
    means = bool(losses) and all(loss and all(term.mean for term in loss) for loss in losses)
    meant = (NORMALISED, SLOWER) if means else (NORMALISED, SLOWER, SUMMED)  # the update itself can divide
    if not sent or any(is_said(pattern, files) for pattern in meant):
        return
    line = max(steps[-1].lines_that_tell, key=lambda each: each.size)
    yield Finding(
        f"the gradients of {ranks} ranks are summed, not averaged: they are {ranks} times too large",
        (
            Evidence(f"gradient that backward left, {norms(line, line.local)}", "", f"backward {event.number - 1}"),
            Evidence(f"gradient at the end of the update, {norms(line, line.given)}", "the mean of these",
                     f"backward {event.number - 1}"),
        ),
        FIX,
        line_of(sent[0]),
    )  # fmt: skip


def _compared(steps: list[Sheet], says: Callable[[Sheet], tuple[str, Fix] | None]) -> Iterator[Finding]:
    if len(steps) < SURE:
        return
    if not all(each.lines_that_tell and all(line.shared for line in each.lines_that_tell) for each in steps):
        return
    said = [says(each) for each in steps]
    if said[-1] and len({each and each[0] for each in said}) == 1:
        message, fix = said[-1]
        last = steps[-1]
        line = max(last.lines_that_tell, key=lambda each: ((each.times_mean(0) or 0) * (fix is ONCE), each.size))
        where = f"rank 0 to {len(last.ranks) - 1}, step {last.number}"
        mean = math.hypot(*line.mean[:-1])
        yield Finding(
            message,
            (
                Evidence(f"gradient that backward left, {norms(line, line.local)}", "", where),
                Evidence(
                    f"the step is given {math.hypot(*(line.given[0] or (0.0,))[:-1]) / mean:.4g} times the ranks' mean"
                    + _words(clipped_to(last)),
                    f"1/{len(last.ranks)} of that, as the others" if fix is ONCE else "1 times",
                    where,
                ),
            ),
            fix,
            _place(last),
        )


def _said(step: Sheet) -> tuple[str, Fix] | None:
    return (twice(step) or multiple(step)) if times(step) else mixed(step)


def _words(clipped: float) -> str:
    return "" if clipped == 1 else f", clipped to {clipped:.4g} of what was exchanged"


def _place(step: Sheet) -> Place:
    if hooks := [each for rank in step.ranks.values() for each in rank.hooks if each[1]]:
        return Place(file=hooks[0][1], line=hooks[0][2])
    exchanged = step.exchanged("gradient")
    if exchanged:
        return line_of(exchanged[0])
    return place(next(iter(step.ranks.values())).site)
