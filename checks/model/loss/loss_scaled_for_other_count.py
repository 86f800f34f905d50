"""A loss is divided by a count that does not go with the mean that is taken over the ranks.

## What happens

DistributedDataParallel averages the gradients of the ranks: it divides their sum by their number. A loss that each rank
divides by the count of all ranks (`losses.sum() / tokens`, after `dist.all_reduce(tokens)`) is therefore divided twice:
the gradients are N times too small, and with N the number of GPUs changes what the learning rate means. Multiplied by
the number of ranks it is right. A loss that is multiplied so, and divided by this rank's own count, is N times too
large. With Adam little is seen of either; weight decay and clipping work N times as much, or as little.

## How to be sure

ddpdoctor reads off the graph of each loss what its sum was divided by, in sampled steps, and compares the ranks. Here
all ranks have divided by the same number, another one in each step, after one number of each rank was added up, and
nothing multiplies by the number of ranks; or each has divided by a number of its own, none was added up, and the line
multiplies by the number of ranks.

Silent where the step is given another multiple of the mean than one, and where the function that computes the loss, or
that adds up the count, divides or multiplies by the number of ranks in any other way.

## How to mend it

    torch.distributed.all_reduce(tokens)
    loss = losses.sum() * torch.distributed.get_world_size() / tokens

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.10 and later, of which saved tensors tell whether a hook has packed
them. Source: PyTorch documentation, DistributedDataParallel (gradients are averaged); transformers, "Fixing gradient
accumulation".
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Exchange,
    Finding,
    Fix,
    Place,
    Severity,
    Sharded,
    StepFingerprinted,
    Training,
    Wrapped,
    tree_of,
    watch,
)

from ..._ledgers.ledger import built, data_parallel_sheets, of_all_ranks
from ..._ledgers.sheets import NEVER, Sheet
from ._loss_lines import line_that_scales_by_ranks, loss_line, scales_by_ranks

AILMENT = Ailment("DDP1570", Severity.WARNING)
FEWEST = 4  # steps
VALUES = 3  # different counts: one that never changes is a constant
ONE = 0.02  # around 1: the multiple of the mean that the step is given
FIX = Fix(
    "add the count up over all ranks, and multiply by their number, which DDP divides by",
    diff="-loss = losses.sum() / tokens\n+torch.distributed.all_reduce(tokens)\n"
    "+loss = losses.sum() * torch.distributed.get_world_size() / tokens",
)


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Compare what the ranks have divided their losses by."""
    whole = data_parallel_sheets(event, training, FEWEST)
    steps = whole if whole and all(map(_is_averaged, whole)) else [] if whole else _of_shards(event, training)
    if len(steps) < FEWEST or not event.backward[0]:
        return
    file, line = loss_line(*event.backward) or event.backward
    found = _judged(steps, file, line, event.backward[1])
    if found is not None and (len(steps) == FEWEST or _judged(steps[:-1], file, line, event.backward[1]) is None):
        yield _finding(steps[-1], *found)  # not said before


def _judged(
    steps: list[Sheet], file: str, line: int, backward: int
) -> tuple[tuple[float, ...], Place, Exchange | None] | None:
    """Return what the ranks have divided a term of the last loss by, where that is said, and what has added it up."""
    added = [_added_up(each) for each in steps]
    for at in range(_terms(steps[-1])):
        counts = [found for each in steps if (found := _counts(each, at))]
        if len(counts) < FEWEST or len(set(counts)) < VALUES:
            continue
        apart = sum(len(set(each)) > 1 for each in counts)
        if not apart and all(added) and (last := added[-1]) is not None:
            if not (scales_by_ranks(file, line, backward) or scales_by_ranks(last.file, last.line)):
                return counts[-1], Place(file=file, line=line), last
        elif apart >= VALUES and not any(added) and (scaling := _scaling(file, line, backward)):
            return counts[-1], Place(file=file, line=scaling), None
    return None


def _scaling(file: str, line: int, backward: int) -> int:
    """Return the line that multiplies a loss by the number of ranks: where it is computed, or just before backward."""
    return line_that_scales_by_ranks(file, line) or line_that_scales_by_ranks(file, backward)


def _is_averaged(step: Sheet) -> bool:
    """Whether DDP gives the step the mean of what the ranks have computed, once, and clipped as the script says."""
    telling = [each for each in step.lines_that_tell if each.managed != NEVER]
    multiples = [each.times_mean(rank) for each in telling for rank in range(len(each.given))]
    clips = {(each.norm, each.most) for rank in step.ranks.values() for each in rank.clips}
    norm, most = clips.pop() if len(clips) == 1 else (0.0, 0.0)
    expected = min(1.0, most / norm) if norm else 1.0
    return bool(telling) and all(each is not None and abs(each / expected - 1) <= ONE for each in multiples)


def _of_shards(event: StepFingerprinted, training: Training) -> list[Sheet]:
    """Return the compared steps of a model that FSDP shards over all ranks, which averages unless it is told not to."""
    told = training.of(Sharded, pid=event.pid)
    alone = {(each.group, each.shards) for each in told} == {(tuple(range(training.world_size)), True)}
    if not alone or training.of(Wrapped) or not event.backward[0]:
        return []
    if any("divide_factor" in each.attr for each in tree_of(event.backward[0]).of(ast.Attribute)):
        return []
    before = [each for each in training.before(event, optimizer=event.optimizer) if each.number < event.number]
    steps = []
    for each in (*reversed(before), event):
        held, ranks = built(each, training), of_all_ranks(each, training)
        if held is not None and held.shards and ranks and not any(one.subgroups for one in ranks.values()):
            steps.append(Sheet(held, ranks, (), 0))
    return steps


def _terms(step: Sheet) -> int:
    """Return of how many terms each loss is; 0 where the losses, of ranks and micro-batches, have different numbers."""
    numbers = {len(loss) for each in step.ranks.values() for loss in each.terms}
    losses = {len(each.terms) for each in step.ranks.values()}
    return numbers.pop() if len(numbers) == len(losses) == 1 else 0


def _counts(step: Sheet, at: int) -> tuple[float, ...]:
    """Return what each rank has divided one term of its losses by; nothing where that is a mean, or not one number."""
    if _terms(step) <= at:
        return ()
    found = []
    for rank in step.ranks.values():
        terms = [loss[at] for loss in rank.terms]
        counts = {each.divided * each.rest for each in terms}
        if len(counts) != 1 or not all(each.divided > 1 and not each.mean for each in terms):
            return ()
        found.append(counts.pop())
    return tuple(found)


def _added_up(step: Sheet) -> Exchange | None:
    """Return what adds up one number of each rank before the backward."""
    sums = [
        each
        for each in next(iter(step.ranks.values())).exchanges
        if (each.operation, each.reduction, each.when) == ("all_reduce", "SUM", "before backward")
    ]
    return next((each for each in sums if each.elements == each.calls), None)


def _finding(step: Sheet, counts: tuple[float, ...], where: Place, added: Exchange | None) -> Finding:
    ranks = len(step.ranks)
    size = "small" if added is not None else "large"
    why = "divided by the count of all ranks and then averaged over them" if added is not None else (
        "divided by each rank's own count, and multiplied by the number of ranks")  # fmt: skip
    proof = (
        (Evidence("adds the count up", "", f"{added.file}:{added.line}"),)
        if added is not None
        else (Evidence("no number is added up over the ranks before the backward", "the count", f"step {step.number}"),)
    )
    return Finding(
        f"the loss is {why}: the gradients of {ranks} ranks are {ranks} times too {size}",
        (
            *(
                Evidence(f"the sum is divided by {each:.6g}", "", f"rank {rank}, step {step.number}")
                for rank, each in list(enumerate(counts))[:8]
            ),
            *proof,
            Evidence("the step is given the mean of the ranks' gradients", "", f"step {step.number}"),
        ),
        FIX,
        where,
    )
