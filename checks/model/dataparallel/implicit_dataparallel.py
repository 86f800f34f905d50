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

from .._logs import NOT_ON_FIRST, REPLICA, SEVERAL, TRAINER, beside
from ._devices import CONTEXT, HARD_CODED, IMPLICIT, LOOK, SPREAD, TWO_GPUS, Setting, setting

AILMENT = Ailment("DDP527", Severity.ERROR)
TRL = r"trl[/\\]trainer[/\\]\w+\.py"
HIDDEN = r"'DataParallel' object has no attribute '\w+'"
IN_STEP = re.compile(r"torch[/\\]optim[/\\]|\boptimizer\.step\(")
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


@log_pattern(
    r"The size of tensor a \((?P<a>\d+)\) must match the size of tensor b \((?P<b>\d+)\) at non-singleton dimension 0",
    context=(SEVERAL,),
    supersedes=("step-fails-without-ddp",),
)
def in_sizes(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """A batch that is shared out over the GPUs, and one that is not, differ by the number of GPUs."""
    small, large = sorted((int(match["a"]), int(match["b"])))
    in_trainer = re.search(rf"{TRAINER}|{TRL}", record.text)
    if not in_trainer or small < 1 or large % small or record.rank is not None or beside(record, log, SEVERAL):
        return
    if IN_STEP.search(record.text):  # no batch comes to the optimizer, see optimizer-state-of-other-parameters
        return
    yield Finding(
        f"a Trainer that one process runs meets a batch that is {large // small} times another: {small} and {large}",
        (record.proof(match, "one process for each GPU"), record.proof(in_trainer)),
        REMEDY,
        record.place,
        ambiguity=Ambiguity(
            (
                f"Trainer's own DataParallel over {large // small} visible GPUs: each gets a part of the batch",
                "the batch and what is computed of it differ on one GPU as well",
            ),
            "CUDA_VISIBLE_DEVICES=0 python train.py   # runs: it was DataParallel",
        ),
    )


def _finding(record: Record, match: re.Match[str], shown: tuple[Evidence, ...]) -> Finding:
    return Finding(
        "Trainer runs the model in DataParallel over all visible GPUs, and a replica failed",
        (record.proof(match, "one process for each GPU"), *shown),
        REMEDY,
        record.place,
    )
