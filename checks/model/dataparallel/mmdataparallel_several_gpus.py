"""OpenMMLab's MMDataParallel was given several GPUs, and it trains on one.

## What happens

`MMDataParallel` of mmcv 1 holds one GPU for training. With `--gpus 2`, `--gpu-ids 0 1` or `gpu_ids = range(2)`, without
a launcher, its first step fails: "MMDataParallel only supports single GPU training". Adding `--launcher pytorch` alone
fails at `os.environ['RANK']`: the option says which launcher has started the script, and starts none.

## How to be sure

The script was started by `python tools/train.py`, not by `tools/dist_train.sh` or torchrun.

## How to mend it

`bash tools/dist_train.sh CONFIG 2`, which starts a process for each GPU and passes `--launcher pytorch`.

## Versions and sources

Holds for mmcv 1.0 to 1.7 with torch 2.2 to 2.13; mmengine, its successor, wraps in torch's own wrapper. Sources:
mmcv/parallel/data_parallel.py, `train_step`; open-mmlab/mmdetection#3116, #3793, #6701.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP1583", Severity.ERROR)


@log_pattern(r"MMDataParallel only supports single GPU training")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the launcher that starts a process for each GPU."""
    yield Finding(
        "MMDataParallel was given several GPUs, and trains on one: no launcher has started a process for each",
        (record.proof(match, "one process for each GPU, with MMDistributedDataParallel"),),
        Fix(
            "start a process for each GPU",
            command="bash tools/dist_train.sh CONFIG.py 2\n"
            "torchrun --nproc-per-node=2 tools/train.py CONFIG.py --launcher pytorch   # the same",
        ),
        record.place,
    )
