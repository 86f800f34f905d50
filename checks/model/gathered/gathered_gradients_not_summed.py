"""A gather of the script's own does not add up in backward what the ranks' losses say of each sample.

## What happens

`all_gather` has no gradient, so trainings wrap it in a `torch.autograd.Function`. Its backward is given, on each rank,
what this rank's loss says of the samples of all ranks. What a sample is to learn is the sum of what all ranks' losses
say of it: DDP divides by the number of ranks afterwards. Where backward hands on its own rank's part alone
(`grads[dist.get_rank()]`), what the others' losses say is lost; where it divides the sum as well, or takes the part of
another rank, it is N times too small, or of other samples. Nothing fails, and the loss goes down.

## How to be sure

Compare the gradients with those of one process that has the whole batch. ddpdoctor (`ddpdoctor run`) looks, in compared
steps, at an all_gather in the `forward` of such a function that is given what has a gradient, in a training whose
gradients are averaged over all ranks; and at what the source of its `backward` does: it calls no communication, or
divides by the number of ranks, or takes a fixed place of what was added up.

So is a function of one's own that adds up over the ranks in forward (statistics of normalisation, say), where backward
calls no communication and each rank's loss is another: each of the losses has the sum in it.

Silent where the script multiplies a gradient or a loss by the number of ranks, which makes up for it where all ranks
compute the same loss, where backward calls other functions of the script's own, and for gathers within a group, as
those of parallelism within a model.

## How to mend it

    @staticmethod
    def backward(ctx, *grads):
        total = torch.stack(grads)
        torch.distributed.all_reduce(total)
        return total[torch.distributed.get_rank()]

Or use torch's own: `torch.distributed.nn.functional.all_gather`.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: torch's torch/distributed/nn/functional.py
(`_AllGather.backward` adds up over the ranks); PyTorch documentation, DistributedDataParallel.
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
    StepFingerprinted,
    Training,
    tree_of,
    watch,
)

from .._alike import earlier, without_parallelism
from ._own_backwards import handed_on, wrong

AILMENT = Ailment("DDP1578", Severity.WARNING)
SURE = 2  # steps


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Look at functions that gather, and at what their backward does, in each of the last steps."""
    ranks = without_parallelism(event, training)
    if not ranks:
        return
    past = [ranks, *earlier(event, training)]
    if len(past) != SURE:
        return
    for file, line in set.intersection(*map(_gathers, past)):
        found = wrong(file, line)
        if found is not None:
            yield _finding(len(ranks), event, (file, line), found)
    if all(_has_own_losses(each) for each in past):
        for file, line in set.intersection(*map(_reduces, past)):
            if (at := handed_on(file, line, event)) and at:
                yield _reduced(len(ranks), event, (file, line), at)


def _has_own_losses(ranks: dict[int, StepFingerprinted]) -> bool:
    """Whether each rank asks for the gradients of a loss of its own: of one that all have, the sum is counted once."""
    losses = [each.loss for each in ranks.values()]
    return None not in losses and len(set(losses)) == len(losses)


def _reduces(ranks: dict[int, StepFingerprinted]) -> set[tuple[str, int]]:
    """Return the lines that add up over all ranks before backward, on all ranks."""
    told = [
        {(each.file, each.line) for each in step.exchanges
         if each.operation == "all_reduce" and each.when == "before backward"}
        for step in ranks.values()
    ]  # fmt: skip
    return set.intersection(*told)


def _reduced(ranks: int, event: StepFingerprinted, sums: tuple[str, int], at: int) -> Finding:
    file, line = sums
    code = next((each for each in tree_of(file).of(ast.Return) if each.lineno == at and each.value is not None), None)
    given = ast.unparse(code.value) if code is not None and isinstance(code.value, ast.Name) else "gradient"
    return Finding(
        f"the backward of an all_reduce hands on what its own rank's loss says alone: {ranks} ranks have losses of "
        "their own, and what a sample changes in those of the others is lost",
        (
            Evidence(
                "all_reduce in forward: the sum is part of each rank's loss", "", f"{file}:{line}, step {event.number}"
            ),
            Evidence(
                "backward communicates nothing", "the gradients of the sum, added up over all ranks", f"{file}:{at}"
            ),
        ),
        Fix(
            "add up the gradients in backward as well",
            diff=f" def backward(ctx, {given}):\n+    {given} = {given}.contiguous().clone()\n"
            f"+    dist.all_reduce({given})\n     return {given}",
        ),
        Place(file=file, line=at),
    )


def _gathers(ranks: dict[int, StepFingerprinted]) -> set[tuple[str, int]]:
    """Return the lines that gather what has a gradient before backward, on all ranks."""
    told = [{(each.file, each.line) for each in step.exchanges if _is_gather(each)} for step in ranks.values()]
    return set.intersection(*told)


def _is_gather(each: Exchange) -> bool:
    return "all_gather" in each.operation and each.when == "before backward" and each.learnt


def _finding(ranks: int, event: StepFingerprinted, gather: tuple[str, int], found: tuple[str, int]) -> Finding:
    (file, line), (what, at) = gather, found
    return Finding(
        f"the backward of a gather {what}: the gradients are not those of one process with the samples of {ranks} "
        "ranks",
        (
            Evidence("all_gather is given what has a gradient", "", f"{file}:{line}, step {event.number}"),
            Evidence(f"backward {what}", "the sum over all ranks, of it this rank's part", f"{file}:{at}"),
            Evidence(f"the gradients of the weights are averaged over {ranks} ranks", "", f"step {event.number}"),
        ),
        Fix(
            "add up over the ranks in backward, and hand on this rank's part",
            diff=" def backward(ctx, *grads):\n+    total = torch.stack(grads)\n"
            "+    torch.distributed.all_reduce(total)\n+    return total[torch.distributed.get_rank()]",
        ),
        Place(file=file, line=at),
    )
