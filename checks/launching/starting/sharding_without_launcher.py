"""The Trainer is asked for FSDP, and the script was started as one process.

## What happens

`TrainingArguments(fsdp="full_shard")` shares the model over the ranks of a distributed training. A script that is
started with `python train.py` is one process without ranks; with several GPUs the Trainer takes DataParallel there. It
refuses: "Using fsdp only works in distributed training." The same happens in a notebook, and where a launcher is asked
for one process and sets no variables.

## How to be sure

Look at the command. The Trainer asks for a distributed training, which it sees by the variables of the launcher:
`echo $RANK $WORLD_SIZE $LOCAL_RANK` in the script's shell shows none.

## How to mend it

    torchrun --nproc_per_node=gpu train.py
    accelerate launch --num_processes 8 train.py

## Versions and sources

Holds for transformers 4.20 to 5.24 with torch 2.2 to 2.13. Source: transformers/trainer.py, `Trainer.__init__`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP464", Severity.ERROR)


@log_pattern(r"Using fsdp only works in distributed training")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The Trainer looks for the launcher's variables itself."""
    yield Finding(
        "the Trainer is to share the model out (fsdp=...), and runs as one process: no launcher started it",
        (record.proof(match, "RANK, WORLD_SIZE and LOCAL_RANK, which a launcher sets"),),
        Fix(
            "start it by a launcher, one process for each GPU",
            command="torchrun --nproc_per_node=gpu train.py   # or: accelerate launch --num_processes 8 train.py",
        ),
        record.place,
    )
