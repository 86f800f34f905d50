"""SyncBatchNorm layers train in a process that has no process group.

SyncBatchNorm gathers the statistics of all ranks in each training forward. In a single process without
init_process_group it ends with "Default process group has not been initialized", though nobody in the script asked
for distributed training: the layers come with a configuration (`norm_cfg=dict(type='SyncBN')`) or a model that was
written for several GPUs. In evaluation the same model works.

How to be sure: frames of `batchnorm.py`, or SyncBN in the configuration that the program prints.

How to mend it: plain batch normalization for a single process, `type='BN'` in the configuration; or a launcher, even
with one process.

Source: torch.nn.modules.batchnorm, SyncBatchNorm.forward; mmcv's revert_sync_batchnorm. Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor import Card, Finding, Fix, Severity
from ddpdoctor.check import sign
from ddpdoctor.explain.records import Log, Record

from ._uninitialized import SYNC_LAYERS, UNINITIALIZED, sync_layers

CARD = Card("DDP408", Severity.ERROR)


@sign(UNINITIALIZED, beside=(SYNC_LAYERS,), explains=("process-group-not-initialized",))
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
