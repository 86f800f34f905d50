"""SyncBatchNorm is to run on a CPU.

## What happens

SyncBatchNorm has kernels for GPUs only. On CPU the bare layer raises "SyncBatchNorm expected input tensor to
be on GPU" in training mode, and DDP refuses the model: "SyncBatchNorm layers only work with GPU modules".

## How to be sure

This machine shows no GPU, and the model has such layers.

## How to mend it

Convert only where there are GPUs, and keep BatchNorm on CPU; or use GroupNorm or LayerNorm,
which need no statistics of other ranks.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Record, Severity, log_pattern, probe

from .._words import counted, listed

if TYPE_CHECKING:
    from ddpdoctor.check import Facts, ModelExam

AILMENT = Ailment("DDP511", Severity.ERROR)


@probe
def without_gpus(facts: Facts, model: ModelExam) -> Iterator[Finding]:
    """Look for the layers where the model can only be on the CPU."""
    layers = [layer for layer in model.model.norms if layer.kind == "SyncBatchNorm"]
    if not layers or facts.gpus.devices or any(item.device != "cpu" for item in model.model.parameters):
        return
    raised = [
        Evidence(str(step.trouble), "a step", f"rank {rank}")
        for rank, step in enumerate(model.taken.plain if model.taken else ())
        if step.trouble is not None and "SyncBatchNorm" in step.trouble.message
    ]
    yield Finding(
        f"{counted(len(layers), 'SyncBatchNorm layer')} of {model.model.kind} cannot run here, there is no GPU",
        (Evidence(listed(layers), "BatchNorm, where there is no GPU", str(model.target)), *raised[:1]),
        Fix(
            "convert only where there are GPUs",
            diff="-model = nn.SyncBatchNorm.convert_sync_batchnorm(model)\n"
            "+if torch.cuda.is_available():\n+    model = nn.SyncBatchNorm.convert_sync_batchnorm(model)",
        ),
    )


@log_pattern(
    r"SyncBatchNorm expected input tensor to be on GPU"
    r"|SyncBatchNorm layers only work with (?:GPU|CUDA) modules"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise what the layer or DDP raises."""
    yield Finding(
        "a SyncBatchNorm layer got a CPU tensor",
        (record.proof(match, "model and inputs on a GPU, or BatchNorm"),),
        Fix(
            "move model and inputs to the GPU; on CPU keep BatchNorm (norm_cfg=dict(type='BN') in configs of mm*)",
            diff="-model = nn.SyncBatchNorm.convert_sync_batchnorm(model)\n"
            "+if device.type == 'cuda':\n+    model = nn.SyncBatchNorm.convert_sync_batchnorm(model)",
        ),
        record.place,
    )
