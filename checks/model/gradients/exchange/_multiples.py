"""What the exchanged gradients are a multiple of, and the words for it."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Fix,
)

from ...._scripts.own_files import is_said
from ..._words import listed

if TYPE_CHECKING:
    from ...._ledgers.sheets import Sheet


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


def twice(step: Sheet) -> tuple[str, Fix] | None:
    """Look for parameters that are reduced twice in a step, as a tied weight is; what is sent says so as well."""
    counted, ranks = times(step), len(step.ranks)
    once = [each for each in counted if all_are([each], min(counted))]
    doubled = [line for line, each in zip(step.lines_that_tell, counted, strict=True) if each not in once]
    if not doubled or not all_are([each for each in counted if each not in once], ranks * min(counted)):
        return None
    sent = sum(each.elements for each in step.exchanged("gradient") if each.when == "after backward")
    if sent != step.elements + sum(line.size for line in doubled):
        return None  # somebody gives them another weight
    names = listed([line.name for line in doubled], 3)
    return f"{names}: summed twice over {ranks} ranks in a step, {ranks} times as much as the other gradients", ONCE


def times(step: Sheet) -> list[float]:
    """Return which multiples of the ranks' mean the step is given; none where one of them is no multiple."""
    times = [line.times_mean(0) for line in step.lines_that_tell]
    known = [each / clipped_to(step) for each in times if each is not None]
    return known if len(known) == len(times) else []


def multiple(step: Sheet) -> tuple[str, Fix] | None:
    lines, ranks = step.lines_that_tell, len(step.ranks)
    if known := times(step):
        if all_are(known, ranks) and not _is_meant(step):
            return (
                f"the gradients of {ranks} ranks are summed, not averaged: they are {ranks} times too large",
                _divided(step),
            )
        once = all(line.added == 1 for line in lines)
        means = _are_means(step) or not _says(step, SUMMED)
        if all_are(known, 1 / ranks) and once and means and _says(step, NORMALISED):
            return f"the mean of the gradients is divided by {ranks} once more: they are {ranks} times too small", TWICE
    return None


def mixed(step: Sheet) -> tuple[str, Fix] | None:
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


def clipped_to(step: Sheet) -> float:
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


def all_are(values: list[float], wanted: float) -> bool:
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
