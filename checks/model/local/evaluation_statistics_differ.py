"""The ranks evaluate with different statistics of batch normalisation.

## What happens

In training each rank's batch normalisation keeps running means and variances of the rank's own batches. DDP gives
rank 0's to all at each forward, unless it was told `broadcast_buffers=False` (or `forward_sync_buffers=False`): then
they drift apart, each rank evaluates a model of its own, and the one that rank 0 saves is not the one whose metrics
were averaged.

So does each rank where gradients are exchanged by hand, and nothing is done for buffers; and where
`torch.optim.swa_utils.update_bn` computes the statistics of an averaged model anew, from the loader of each rank.

## How to be sure

The norm of a running variance differs by more than one percent between the ranks at a forward in
evaluation mode, or when a pass over a loader begins that trains nothing while what DDP has wrapped is in evaluation
mode, after the same number of steps. Or it differs so in a copy of the model that all ranks evaluate, where no
model is wrapped, or where a file of the script calls `update_bn`.

## How to mend it

SyncBatchNorm, whose statistics are those of all ranks; or average the buffers before an evaluation.

Silent of the wrapped model where DDP broadcasts buffers, and where they are equal when the evaluation begins.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "DistributedDataParallel",
broadcast_buffers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    EvaluatedWith,
    EvaluationBegan,
    Evidence,
    Finding,
    Fix,
    Joined,
    Place,
    Severity,
    StepFingerprinted,
    Training,
    Used,
    Wrapped,
    last_name,
    place,
    tree_of,
    watch,
)

from ..._evaluation.evaluations import shares_gradients
from ..._scripts.own_files import own_files
from .._alike import weights_apart

AILMENT = Ailment("DDP568", Severity.WARNING)
TOLERANCE = 0.01
EQUAL = 1e-3  # of what is added up in another order


@watch(EvaluationBegan)
def while_training(event: EvaluationBegan, training: Training) -> Iterator[Finding]:
    """Compare the variances once all ranks of the model's group have told them."""
    wrapped = training.of(Wrapped, pid=event.pid, model=event.model)
    told = training.by_rank(EvaluationBegan, model=event.model, steps=event.steps, names=event.names)
    group = [rank for rank in training.by_rank(Joined) if wrapped and rank in wrapped[-1].group]
    if len(group) < 2 or not {*group} <= {*told}:  # noqa: PLR2004 - one rank compares with nobody
        return
    for name, *values in zip(event.names, *(told[rank].variances for rank in group), strict=False):
        if max(values) - min(values) > TOLERANCE * max(values):
            seen = ", ".join(f"{value:.4g} on rank {rank}" for rank, value in zip(group, values, strict=True))
            yield Finding(
                f"the ranks evaluate with different batch normalisation: {name} differs",
                (
                    Evidence(f"norm of {name}: {seen}", "the same on all ranks", f"after {event.steps} steps"),
                    Evidence("broadcast_buffers=False", "", str(wrapped[-1].site)),
                ),
                Fix(
                    "use statistics of all ranks",
                    diff="+model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)\n"
                    " model = DDP(model, broadcast_buffers=False)\n"
                    "or, before each evaluation\n"
                    "+for buffer in model.buffers():\n+    dist.broadcast(buffer, src=0)",
                ),
                place(event.site),
            )
            return


@watch(EvaluatedWith)
def of_a_copy(event: EvaluatedWith, training: Training) -> Iterator[Finding]:
    """Compare the statistics of what all ranks evaluate and no optimizer holds, where its parameters are equal."""
    ranks = training.complete(EvaluatedWith, number=event.number)
    if not ranks or training.framework is not None or not shares_gradients(event.pid, training):
        return
    if weights_apart(training.complete(StepFingerprinted)):
        return
    for column in zip(*(each.used for each in ranks.values()), strict=False):
        used = column[0]
        anew = _computed_anew(used)
        if len({(each.kind, each.names, each.sizes) for each in column}) > 1 or not (anew or not training.of(Wrapped)):
            continue
        found = next(_variances_apart(column), None)
        if found is not None:
            name, seen = found
            how = "update_bn has computed them from each rank's own loader" if anew else "nothing makes buffers alike"
            yield Finding(
                f"the ranks evaluate {used.kind} with different batch normalisation: {name} differs",
                (
                    Evidence(f"norm of {name}: {seen}", "the same on all ranks", "as an evaluation calls it"),
                    Evidence(how, "statistics of all ranks", str(anew) if anew else "all ranks"),
                ),
                Fix(
                    "average the statistics before the evaluation",
                    diff="+for name, buffer in averaged.named_buffers():\n+    if 'running' in name:\n"
                    "+        dist.all_reduce(buffer)\n+        buffer.div_(dist.get_world_size())",
                ),
                anew or Place(file=used.file or None, line=used.line or None),
            )
            return


def _variances_apart(column: tuple[Used, ...]) -> Iterator[tuple[str, str]]:
    first = column[0]
    for at, name in enumerate(first.names):
        norms = [print_[-1] for each in column if (print_ := each.prints[at])]
        if at < first.parameters:
            if len(norms) < len(column) or max(norms) - min(norms) > EQUAL * max(norms):
                return  # another check's
        elif name.endswith("running_var") and max(norms) - min(norms) > TOLERANCE * max(norms):
            yield name, ", ".join(f"{value:.4g} on rank {rank}" for rank, value in enumerate(norms))


def _computed_anew(used: Used) -> Place | None:
    """Return the line that has torch compute the statistics of an averaged model from a loader."""
    calls = [
        (file, each.lineno)
        for file in own_files(used.file)
        for each in tree_of(file).of(ast.Call)
        if last_name(each.func) == "update_bn"
    ]
    return Place(file=calls[0][0], line=calls[0][1]) if len(calls) == 1 else None
