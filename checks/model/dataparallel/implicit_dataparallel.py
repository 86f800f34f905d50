"""Trainer put the model into DataParallel, because several GPUs are visible and no launcher was used.

## What happens

The Trainer of transformers wraps the model in `torch.nn.DataParallel` when it is started by plain `python` and sees
more than one GPU. Nobody asked for it, and models are seldom written for it: replicas have no `parameters()`, tensors
stay on GPU 0, a batch is split once more. The message is that of some replica: "Caught StopIteration in replica 0 on
device 0", "Expected all tensors to be on the same device, but found at least two devices, cuda:1 and cuda:0!",
"'DataParallel' object has no attribute ...".

## How to be sure

Frames of `transformers/trainer.py` and of `torch/nn/parallel/data_parallel.py` stand in one traceback,
or a replica is named in it; with `CUDA_VISIBLE_DEVICES=0` the same command works.

## How to mend it

Start one process for each GPU with torchrun or `accelerate launch`, which is faster too; or show the
script one GPU.

## Versions and sources

Holds for all versions of transformers with torch 2.2 to 2.13. Source: transformers, "GPU selection" and
`Trainer._wrap_model`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Evidence, Finding, Fix, Log, Record, Severity, log_pattern

from .._logs import NOT_ON_FIRST, REPLICA, TRAINER, beside
from ._devices import CONTEXT, HARD_CODED, IMPLICIT, LOOK, SPREAD, TWO_GPUS, Setting, setting

AILMENT = Ailment("DDP527", Severity.ERROR)
HIDDEN = r"'DataParallel' object has no attribute '\w+'"
REMEDY = Fix(
    "start one process for each GPU, or show the script one GPU",
    command="torchrun --standalone --nproc_per_node=gpu train.py\n# or\nCUDA_VISIBLE_DEVICES=0 python train.py",
)


@log_pattern(rf"{REPLICA}|{HIDDEN}|{NOT_ON_FIRST}", context=(TRAINER,))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Recognise DataParallel that Trainer started, whatever the replica then stumbled over."""
    if shown := beside(record, log, TRAINER):
        yield _finding(record, match, shown)


@log_pattern(TWO_GPUS, context=CONTEXT)
def in_a_replica(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Recognise it by the frames of DataParallel below those of Trainer."""
    if setting(record, log) is Setting.TRAINER:
        yield _finding(record, match, beside(record, log, TRAINER))


@log_pattern(TWO_GPUS, context=CONTEXT)
def of_one_process(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Leave open what spread a program over the GPUs that was started as one process."""
    if setting(record, log) is Setting.PYTHON:
        yield Finding(
            "one process uses several GPUs, and an operation got tensors of two of them",
            (record.proof(match, "all tensors on one GPU"),),
            REMEDY,
            record.place,
            ambiguity=Ambiguity((IMPLICIT, SPREAD, HARD_CODED), LOOK),
        )


def _finding(record: Record, match: re.Match[str], shown: tuple[Evidence, ...]) -> Finding:
    return Finding(
        "Trainer runs the model in DataParallel over all visible GPUs, and a replica failed",
        (record.proof(match, "one process for each GPU"), *shown),
        REMEDY,
        record.place,
    )
