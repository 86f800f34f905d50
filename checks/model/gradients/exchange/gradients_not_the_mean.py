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
import re
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

from ...._ledgers.ledger import line_of, norms, sheets
from ...._ledgers.updates import TOLD, updates
from ...._scripts.own_files import is_said
from ..._owners import shared_out
from ..._words import listed

if TYPE_CHECKING:
    from ...._ledgers.sheets import Sheet

AILMENT = Ailment("DDP571", Severity.ERROR)
SURE = 2
EXACT = 6e-3  # what is rounded to 16 bits on its way is a multiple still
HALF = 0.5
ODD = {"MAX", "MIN", "PRODUCT"}
SIZE = r"(\w*world\w*|\w*size\w*|n_?\w*proc\w*|num_?\w*|n_?ranks?|n_?gpus?|get_world_size\(\))"
NORMALISED = re.compile(rf"(/=?|div_?\(|mul_?\() *[\w.]*\b{SIZE}")
SLOWER = re.compile(rf"\b(lr|rate|learning_rate|\w+_lr)\b.*/=? *[\w.]*\b{SIZE}")
SUMMED = re.compile(r"""reduction *= *["'](sum|none)|\.sum\(\)""")
FIX = Fix(
    "divide the sum by the number of ranks",
    diff=" dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)\n+parameter.grad /= dist.get_world_size()",
)


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Compare what all ranks were given with the mean of what they have computed."""
    steps = sheets(event, training)[-SURE:]
    if event.number >= SURE and not any(each.is_parallel_otherwise for each in steps):
        yield from _compared(steps, _said)


@watch(OthersFingerprinted)
def shared_out_by_hand(event: OthersFingerprinted, training: Training) -> Iterator[Finding]:
    """Compare what the rank that steps a parameter was given with the mean of what all have computed."""
    yield from _compared([each.sheet for each in shared_out(event, training, SURE)[-SURE:]], _multiple)


@watch(WeightsFingerprinted)
def without_optimizer(event: WeightsFingerprinted, training: Training) -> Iterator[Finding]:
    """Look at the updates of a script that has no optimizer of torch's."""
    steps = updates(training) if event.number == TOLD[-1] else []
    if not steps:
        return
    ranks = len(steps[-1].ranks)
    for each in steps:
        times = [each.times_mean(line) for line in each.lines_that_tell]
        if not times or not _all_are(times, ranks):
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
                    + _words(_clipped_to(last)),
                    f"1/{len(last.ranks)} of that, as the others" if fix is ONCE else "1 times",
                    where,
                ),
            ),
            fix,
            _place(last),
        )


def _said(step: Sheet) -> tuple[str, Fix] | None:
    return (_twice(step) or _multiple(step)) if _times(step) else _mixed(step)


def _twice(step: Sheet) -> tuple[str, Fix] | None:
    """Look for parameters that are reduced twice in a step, as a tied weight is; what is sent says so as well."""
    times, ranks = _times(step), len(step.ranks)
    once = [each for each in times if _all_are([each], min(times))]
    twice = [line for line, each in zip(step.lines_that_tell, times, strict=True) if each not in once]
    if not twice or not _all_are([each for each in times if each not in once], ranks * min(times)):
        return None
    sent = sum(each.elements for each in step.exchanged("gradient") if each.when == "after backward")
    if sent != step.elements + sum(line.size for line in twice):
        return None  # somebody gives them another weight
    names = listed([line.name for line in twice], 3)
    return f"{names}: summed twice over {ranks} ranks in a step, {ranks} times as much as the other gradients", ONCE


def _times(step: Sheet) -> list[float]:
    """Return which multiples of the ranks' mean the step is given; none where one of them is no multiple."""
    times = [line.times_mean(0) for line in step.lines_that_tell]
    known = [each / _clipped_to(step) for each in times if each is not None]
    return known if len(known) == len(times) else []


def _multiple(step: Sheet) -> tuple[str, Fix] | None:
    lines, ranks = step.lines_that_tell, len(step.ranks)
    if known := _times(step):
        if _all_are(known, ranks) and not _is_meant(step):
            return (
                f"the gradients of {ranks} ranks are summed, not averaged: they are {ranks} times too large",
                _divided(step),
            )
        once = all(line.added == 1 for line in lines)
        if _all_are(known, 1 / ranks) and once and _says(step, NORMALISED) and not _says(step, SUMMED):
            return f"the mean of the gradients is divided by {ranks} once more: they are {ranks} times too small", TWICE
    return None


def _mixed(step: Sheet) -> tuple[str, Fix] | None:
    lines, ranks = step.lines_that_tell, len(step.ranks)
    for rank in range(ranks):
        if all(line.times_own(0, of=rank) is not None for line in lines):
            return f"all ranks step with the gradients of rank {rank}: what the others compute is thrown away", REDUCE
    for each in step.exchanged("gradient"):
        if each.reduction in ODD and each.when == "after backward" and _most(step, each.reduction):
            return f"{each.operation} with {each.reduction} is no mean: gradients of {ranks} ranks are mixed up", MEAN
    return None


def _is_meant(step: Sheet) -> bool:
    """Whether the source says that a sum is divided elsewhere: in the loss, or by a smaller learning rate."""
    if _are_means(step):
        return _says(step, SLOWER)
    return _says(step, NORMALISED) or _says(step, SUMMED)


def _are_means(step: Sheet) -> bool:
    """Whether all losses of a step were seen to be means over this rank's own elements."""
    losses = [loss for each in step.ranks.values() for loss in each.terms]
    return bool(losses) and all(loss and all(term.mean for term in loss) for loss in losses)


def _words(clipped: float) -> str:
    return "" if clipped == 1 else f", clipped to {clipped:.4g} of what was exchanged"


def _clipped_to(step: Sheet) -> float:
    """Return by which factor all gradients were clipped after they had been exchanged; 1 where that is not seen."""
    clips = next(iter(step.ranks.values())).clips
    if len(clips) != 1 or not clips[0].reduced or clips[0].norm <= clips[0].most:
        return 1.0
    return clips[0].most / clips[0].norm


def _divided(step: Sheet) -> Fix:
    """Return where the sum is to be divided: in the communication hook, where one stands in for DDP's all-reduce."""
    hooks = {each for rank in step.ranks.values() for each in rank.hooks}
    if len(hooks) != 1:
        return FIX
    ((name, *_),) = hooks
    return Fix(
        f"divide by the number of ranks in the communication hook {name}: DDP leaves that to it",
        diff=f" def {name}(state, bucket):\n+    bucket.buffer().div_(dist.get_world_size())   # first of all",
    )


def _most(step: Sheet, reduction: str) -> bool:
    """Whether a reduction was given most of the gradients, and not a flag."""
    given = sum(each.elements for each in step.exchanged("gradient") if each.reduction == reduction)
    return given >= HALF * step.elements


def _all_are(values: list[float], wanted: float) -> bool:
    return all(math.isclose(value, wanted, rel_tol=EXACT) for value in values)


TWICE = Fix("divide once: DDP, and ReduceOp.AVG, have divided already", diff="-parameter.grad /= world_size")
ONCE = Fix(
    "reduce each parameter once: parameters() of the whole model has a tied weight once",
    diff="-for part in parts:\n-    for parameter in part.parameters():\n-        dist.all_reduce(parameter.grad)\n"
    "+for parameter in model.parameters():\n+    dist.all_reduce(parameter.grad)",
)
REDUCE = Fix(
    "reduce the gradients over all ranks",
    diff="-dist.broadcast(parameter.grad, 0)\n+dist.all_reduce(parameter.grad)\n"
    "+parameter.grad /= dist.get_world_size()",
)
MEAN = Fix(
    "sum, and divide by the number of ranks",
    diff="-dist.all_reduce(parameter.grad, op=dist.ReduceOp.MAX)\n+dist.all_reduce(parameter.grad)\n"
    "+parameter.grad /= dist.get_world_size()",
)


def _says(step: Sheet, pattern: re.Pattern[str]) -> bool:
    """Whether the files in which the training steps and exchanges say something; those that cannot be read may."""
    first = next(iter(step.ranks.values()))
    files = {first.site.file if first.site else "", step.held.site.file if step.held.site else ""}
    files |= {each.file for each in step.exchanged("gradient")}
    return is_said(pattern, files)


def _place(step: Sheet) -> Place:
    if hooks := [each for rank in step.ranks.values() for each in rank.hooks if each[1]]:
        return Place(file=hooks[0][1], line=hooks[0][2])
    exchanged = step.exchanged("gradient")
    if exchanged:
        return line_of(exchanged[0])
    return place(next(iter(step.ranks.values())).site)
