"""The script exchanges gradients by hand, and the ranks step with different ones all the same.

## What happens

What is exchanged by hand must reach all ranks, in every step, and must not be changed on each rank for itself
afterwards. `dist.reduce` gives the result to one rank alone. A division by something that each rank has of its own (its
batch, its loss), or clipping by another limit, makes them different again. An exchange in every second step only leaves
the others without. Then the replicas drift apart, without an error.

## How to be sure

ddpdoctor takes linear fingerprints of each gradient in sampled steps, right after backward and right before the step,
on each rank: which multiple of the ranks' mean a rank was given, or of its own gradient, can be computed from them.
Where it is not seen what is exchanged (parts of gradients, or those of single samples), something of their size must be
sent in each compared step, before it, and the weights part.

Silent where there are groups of some ranks, or communications within a model, and for parameters that began differently
on the ranks. Steps without an exchange are reported once one with an exchange has followed: local steps that come after
all others are a method.

## How to mend it

    dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
    parameter.grad /= dist.get_world_size()

in every step, on all ranks; what changes gradients afterwards computes from what is equal on all of them.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "torch.distributed".
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import (
    DEEPSPEED,
    Ailment,
    Evidence,
    Exchange,
    Finding,
    Fix,
    Place,
    Severity,
    StepFingerprinted,
    Training,
    watch,
)

from ..._ledgers.ledger import data_parallel_sheets, have_parted
from ..._ledgers.sheets import NEVER, Line, Sheet
from ..._ledgers.wordings import line_of, seen
from .._alike import counts_differ

AILMENT = Ailment("DDP572", Severity.ERROR)
SURE = 2
MANY = 4  # steps, where it is not seen what is exchanged
HALF = 0.5  # of the gradients
FIX = Fix(
    "give the mean to all ranks, and change it on all alike",
    diff="-dist.reduce(parameter.grad, dst=0)\n+dist.all_reduce(parameter.grad)\n"
    " parameter.grad /= dist.get_world_size()",
)
ALWAYS = Fix(
    "exchange in every step that the optimizer makes",
    diff="-if step % 2 == 0:\n-    average(model)\n+average(model)\n optimizer.step()",
)


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Look at steps before which the script has exchanged gradients, after backward."""
    if training.framework is DEEPSPEED:
        return  # of ZeRO's flat parameters each rank has another part, and all begin as zeros
    steps = data_parallel_sheets(event, training, SURE)
    if not steps or any(counts_differ(each.ranks) for each in steps):
        return  # the ranks' steps of one number are not one step
    last = steps[-1]
    by_hand = [each for each in last.exchanged("gradient") if each.when == "after backward"]
    apart = _apart(last)
    if apart and _apart(steps[-2]) and not any(line.unchanged for line in apart if line.size > 1):
        if by_hand:
            yield _changed(last, apart, line_of(by_hand[0]))
        elif (large := _large(steps)) and not any(_large(steps[:at]) for at in range(SURE, len(steps))):
            yield _changed(last, apart, line_of(large))
    elif by_hand and _shared(last):
        without = [each for each in steps[:-1] if _own(each)]
        if without:
            yield _sometimes(last, without[-1], line_of(by_hand[0]))


def _apart(step: Sheet) -> list[Line]:
    return [line for line in step.lines_that_tell if line.apart and line.replica and line.managed == NEVER]


def _large(steps: list[Sheet]) -> Exchange | None:
    """Return what can be an exchange of the gradients in each of these steps, after which the weights go apart."""
    if len(steps) < MANY or not all(map(have_parted, steps[1:])):
        return None
    if any(each.exchanged("parameter") for each in steps):
        return None
    found = [_largest(each) for each in steps]
    lines = {(each.file, each.line) if each is not None else None for each in found}
    return found[-1] if len(lines) == 1 else None


def _largest(step: Sheet) -> Exchange | None:
    """Return what unknown a line gives to the other ranks, of at least half as many elements as there are gradients.

    Where no backward adds gradients up, nobody knows what comes after one.
    """
    seen = any(line.computed for line in step.lines)
    fitting = [
        each
        for each in step.exchanged("")
        if each.elements >= HALF * step.elements and (each.when == "after backward" or not seen)
    ]
    return max(fitting, key=lambda each: each.elements, default=None)


def _own(step: Sheet) -> bool:
    """Whether each rank has stepped with what it has computed itself."""
    apart = _apart(step)
    return bool(apart) and len(apart) == len(step.lines_that_tell) and all(line.own for line in apart)


def _shared(step: Sheet) -> bool:
    return bool(step.lines_that_tell) and all(line.shared for line in step.lines_that_tell)


def _changed(step: Sheet, apart: list[Line], where: Place) -> Finding:
    line = max(apart, key=lambda each: each.size)
    told, to_all = [], True
    for rank in step.ranks:
        times = line.times_mean(rank)
        own = line.times_own(rank)
        to_all = to_all and times is not None
        what = "neither" if times is own is None else f"{times:.4g} times the mean" if times else f"{own:.4g} its own"
        told.append(f"{what} on rank {rank}")
    message = (
        "gradients are changed on each rank for itself after they were exchanged"
        if to_all
        else "the exchange of gradients does not reach all ranks, or changes them on each for itself"
    )
    evidence = Evidence(f"{line.name} is given {', '.join(told[:8])}", "the mean on all", f"step {step.number}")
    return Finding(message, (*seen(line, step), evidence), FIX, where)


def _sometimes(step: Sheet, without: Sheet, where: Place) -> Finding:
    line = max(_apart(without), key=lambda each: each.size)
    return Finding(
        "gradients are exchanged before some steps, and not before others, in which each rank steps with its own",
        (
            *seen(line, without),
            Evidence(f"exchanged before step {step.number}, not before step {without.number}", "before each", "ranks"),
        ),
        ALWAYS,
        where,
    )
