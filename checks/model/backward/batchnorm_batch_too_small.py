"""Batch normalisation sees only two samples of each rank.

## What happens

Under DDP each rank's BatchNorm takes mean and variance from that rank's samples alone, and the running
statistics that are saved are those of rank 0. With one or two samples these are noise: the accuracy is lower
than one process with the whole batch has, more so in evaluation.

## How to be sure

ddpdoctor notes the shape of what goes into each layer in a step with the example batch. If
that batch is smaller than the training's, this says nothing about the training.

## How to mend it

More samples on each rank; SyncBatchNorm on GPUs, which takes the statistics over all ranks;
or GroupNorm.

## Versions and sources

Holds for all versions of torch. Source: PyTorch documentation, "SyncBatchNorm".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Severity, probe

from .._words import counted

if TYPE_CHECKING:
    from ddpdoctor.check import ModelExam

AILMENT = Ailment("DDP513", Severity.NOTE)
SMALL = 2


@probe
def in_a_step(model: ModelExam) -> Iterator[Finding]:
    """Look at what the layers of rank 0 were given."""
    step = model.steps.alone()[0]
    small = [(name, shape) for name, shape in step.normed if 0 < shape[0] <= SMALL]
    if small:
        name, shape = small[0]
        yield Finding(
            f"{counted(len(small), 'batch normalisation layer')} of {model.model.kind} takes its statistics from "
            f"{counted(shape[0], 'sample')} of its rank",
            (Evidence(f"input of {name}: {list(shape)}", "several samples", "rank 0"),),
            Fix(
                "more samples on each rank, or statistics over all ranks on GPUs",
                diff="+model = nn.SyncBatchNorm.convert_sync_batchnorm(model)\n model = DDP(model)",
            ),
        )
