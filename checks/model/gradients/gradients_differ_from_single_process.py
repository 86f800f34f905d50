"""One process with the whole batch has another gradient than the ranks together.

## What happens

DDP's gradient is the mean of the ranks' gradients. If the loss is a mean over samples, and each sample is
computed by itself, that is the gradient of one process with all ranks' samples. Where it is not, a training
on N ranks is another training than on one, with the same hyper-parameters:

- a loss that is a sum over samples: DDP's gradient is 1/N of that of one process. A warning; with SGD the
  steps are N times smaller, with Adam it matters for gradient clipping and weight decay.
- BatchNorm takes its statistics from each rank's samples. A note: that is how DDP trains such models.
- a loss divided by something that differs between ranks (the number of tokens that are not padding),
  contrastive losses and others that compare the samples of a batch, or a first dimension that is not the
  batch. A note, since it can be meant so.

## How to be sure

ddpdoctor puts the ranks' example batches together along the first dimension and compares
gradients in double precision where the model can, with dropout off. If the model gives a scalar that is taken
for the loss; otherwise the loss is a mean over samples of a fixed function of all outputs, and the user's own
loss is not examined. It then repeats the comparison with BatchNorm in evaluation mode and with N times the
gradient, to know the cause. Nothing is said if the batches differ in shape between ranks, or if the model
takes no other batch size.

## How to mend it

`reduction="mean"`; multiply by the world size and divide by the number of tokens of all ranks
(`all_reduce` it); SyncBatchNorm on GPUs.

## Versions and sources

Holds for all versions of torch. Source: PyTorch documentation, "DistributedDataParallel"; seen with torch
2.13 CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Ambiguity, Evidence, Finding, Fix, NotRun, Severity, Table, probe

from .._words import counted

if TYPE_CHECKING:
    from ddpdoctor.check import ModelExam

AILMENT = Ailment("DDP514", Severity.WARNING)
ROWS = 6
CAUSES = {
    "sum": (
        "the loss is a sum over samples: DDP's gradient is 1/{ranks} of that of one process with the whole batch",
        "take the mean over samples, or multiply the loss by the world size",
        (
            '-loss = F.cross_entropy(logits, targets, reduction="sum")\n'
            '+loss = F.cross_entropy(logits, targets, reduction="mean")'
        ),
    ),
    "batch norm": (
        "batch normalisation takes its statistics from each rank's samples: {ranks} ranks do not train as one process",
        "take the statistics over all ranks (GPUs only), or use GroupNorm",
        "+model = nn.SyncBatchNorm.convert_sync_batchnorm(model)\n model = DDP(model)",
    ),
    "": (
        "{ranks} ranks do not train as one process with the whole batch: it matters which samples are together",
        "divide the loss by what all ranks count together",
        (
            "+count = mask.sum()\n+dist.all_reduce(count)\n-loss = losses.sum() / mask.sum()\n"
            "+loss = losses.sum() / count * dist.get_world_size()"
        ),
    ),
}


@probe
def against_the_whole_batch(model: ModelExam) -> Iterator[Finding]:
    """Yield the name of the parameters whose gradients differ, and the cause that the experiments found."""
    parity = model.steps.compared()[0]
    if parity.whole is None:
        raise NotRun("the ranks' batches cannot be put together into one")
    if not parity.whole:
        return
    first = parity.whole[0]
    message, fix, diff = CAUSES[parity.cause]
    yield Finding(
        message.format(ranks=len(model.ranks)),
        (
            Evidence(
                f"the gradient of {first.name} has norm {first.seen:.4g}",
                f"{first.expected:.4g}, that of one process",
                f"{len(model.ranks)} ranks, {parity.mode}",
            ),
            Evidence(f"{counted(len(parity.whole), 'parameter')} of {len(model.model.trainable)} differ", "none"),
        ),
        Fix(fix, diff=diff),
        severity=Severity.WARNING if parity.cause == "sum" else Severity.NOTE,
        table=Table(
            ("parameter", f"{len(model.ranks)} ranks", "one process", "difference"),
            tuple(
                (item.name, f"{item.seen:.4g}", f"{item.expected:.4g}", f"{item.relative:.0%}")
                for item in parity.whole[:ROWS]
            ),
        ),
        ambiguity=None
        if parity.cause
        else Ambiguity(
            (
                "the loss is divided by a number that differs between ranks, such as tokens that are not padding",
                "the loss compares samples of one batch (contrastive), which is meant so",
                "the first dimension of the example batch is not the batch",
            ),
            r"grep -nE 'reduction=|\.sum\(|\.mean\(|all_gather|@ .*\.T' " + (model.source.file or model.target.module),
        ),
    )
