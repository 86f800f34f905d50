"""A distributed call is reached before init_process_group.

DistributedDataParallel, DistributedSampler without rank and size, barrier, get_rank and SyncBatchNorm in training
need the default process group: "Default process group has not been initialized". The script was started without its
launcher or its `--launcher` option and skips the initialization, or it makes the call above the line that
initializes.

How to be sure: the line of the traceback that is yours; `torch.distributed.is_initialized()` is False there. If the
last frames are those of a batch normalization, the layers are the cause (syncbn-without-process-group).

How to mend it: start with torchrun and call init_process_group first; a script that also runs alone guards the call.
Frameworks with a launcher option (mmcv, mmengine) want `--launcher pytorch`.

Source: torch.distributed.distributed_c10d, _get_default_group. Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor import Card, Doubt, Finding, Fix, Severity
from ddpdoctor.check import sign
from ddpdoctor.explain.records import Log, Record

from ._uninitialized import SYNC_LAYERS, UNINITIALIZED, sync_layers

CARD = Card("DDP407", Severity.ERROR)
OPEN_MMLAB = r"\bmm(?:cv|engine|det|seg|pose|rotate|pretrain|cls)\w*[/\\.]|detectron2|--launcher"


@sign(UNINITIALIZED, beside=(SYNC_LAYERS, OPEN_MMLAB))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Name the call, unless layers that synchronize made it."""
    if sync_layers(record, log):
        return
    layers = re.search(OPEN_MMLAB, record.text) or log.first(OPEN_MMLAB)
    where = record.users
    yield Finding(
        f"{where.function} makes a distributed call before init_process_group"
        if where
        else "a distributed call is reached before init_process_group",
        (record.proof(match, "torch.distributed.is_initialized() is True"),),
        Fix(
            "initialize first, in a process that a launcher started"
            + ("; these frameworks want --launcher pytorch" if layers else ""),
            command="torchrun --standalone --nproc_per_node=2 train.py" + (" --launcher pytorch" if layers else ""),
            diff='+torch.distributed.init_process_group("nccl")\n model = DistributedDataParallel(model)',
        ),
        record.place,
        doubt=Doubt(
            (
                "the script was started without its launcher, and skips the initialization",
                "the model has SyncBatchNorm layers, and one process trains it alone",
            ),
            "python -X faulthandler train.py 2>&1 | grep -iE 'batchnorm|SyncBN'   # a hit: the layers",
        )
        if not where
        else None,
    )
