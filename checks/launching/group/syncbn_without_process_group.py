"""SyncBatchNorm layers train in a process that has no process group.

## What happens

SyncBatchNorm gathers the statistics of all ranks in each training forward. In a single process without
init_process_group it ends with "Default process group has not been initialized", though nobody in the script asked
for distributed training: the layers come with a configuration (`norm_cfg=dict(type='SyncBN')`) or a model that was
written for several GPUs. In evaluation the same model works.

## How to be sure

Frames of `batchnorm.py`, or SyncBN in the configuration that the program prints.

## How to mend it

Plain batch normalization for a single process, `type='BN'` in the configuration; or a launcher, even
with one process.

## Versions and sources

Source: torch.nn.modules.batchnorm, SyncBatchNorm.forward; mmcv's revert_sync_batchnorm. Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Log, Record, Severity, log_pattern

from ._uninitialized import SYNC_LAYERS, UNINITIALIZED, sync_layers

AILMENT = Ailment("DDP408", Severity.ERROR)


@log_pattern(UNINITIALIZED, context=(SYNC_LAYERS,))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Look for the layers in the traceback, and in what the program printed of its model."""
    layers = sync_layers(record, log)
    if layers is None:
        return
    yield Finding(
        "SyncBatchNorm layers run in a process that called no init_process_group",
        (
            record.proof(match, "torch.distributed.is_initialized() is True"),
            layers[0].proof(layers[1], "BatchNorm layers in a single process"),
        ),
        Fix(
            "use plain batch normalization in a single process, or start one with a launcher",
            command="torchrun --standalone --nproc_per_node=1 train.py",
            diff="-norm_cfg = dict(type='SyncBN', requires_grad=True)\n+norm_cfg = dict(type='BN', requires_grad=True)",
        ),
        record.place,
    )
