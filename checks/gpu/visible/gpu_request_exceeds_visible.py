"""More GPUs are requested of Lightning than the process can see.

## What happens

`Trainer(devices=2)` or `gpus=2` names GPUs that the process does not have: "You requested gpu: [0, 1] But your machine
only has: [0]". The machine has fewer, the job was given fewer (Slurm's --gres, Kubernetes' limits), or
CUDA_VISIBLE_DEVICES hides some; where it has `[]`, torch sees no GPU at all, which is a matter of driver or build.

## How to be sure

`python -c "import torch; print(torch.cuda.device_count())"` in the very job.

## How to mend it

Ask the scheduler for the GPUs, or the Trainer for those that are there (`devices="auto"`). Under Slurm
with --gpus-per-task each task sees one GPU only: that is slurm-binds-one-gpu.

## Versions and sources

Source: Lightning, accelerator device parsing (`gpus` in 1.x, `devices` since 2.0). Holds for Lightning 1.5 to 2.5 with
torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Severity, log_pattern

from ._slurm import FOUND, REQUESTED, SLURM, indices

AILMENT = Ailment("DDP217", Severity.ERROR)


@log_pattern(REQUESTED, context=(FOUND, SLURM))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Compare what was asked for with what is visible."""
    own = re.search(FOUND, record.text)
    where, found = (record, own) if own else log.first(FOUND) or (record, None)
    seen = indices(found[1]) if found else ()
    if found is None or (seen == (0,) and log.first(SLURM)):
        return
    wanted = indices(match[1])
    yield Finding(
        f"{len(wanted)} GPUs are requested ({match[1]}), and the process sees {len(seen)} ({found[1]})",
        (where.proof(found, match[1]),),
        Fix(
            "ask the scheduler for the GPUs, or the Trainer for those that are there"
            if seen
            else "install a torch that is built for CUDA, on a machine whose driver works: torch sees no GPU",
            command=f"#SBATCH --gres=gpu:{len(wanted)}   # or: Trainer(devices={max(len(seen), 1)})"
            if seen
            else 'nvidia-smi; python -c "import torch; print(torch.version.cuda, torch.cuda.is_available())"',
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the machine or the job has one GPU",
                "CUDA_VISIBLE_DEVICES hides the others",
                "Slurm's --gpus-per-task shows each task a GPU of its own as number 0",
            ),
            'nvidia-smi -L; echo "$CUDA_VISIBLE_DEVICES"; env | grep SLURM_.*GPU',
        )
        if seen == (0,)
        else None,
    )


@log_pattern(r"ValueError: No slot '(?P<slot>\d+)' specified on host '(?P<host>[^'\n]+)'")
def of_deepspeed(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """DeepSpeed's launcher counts the GPUs of a host by its hostfile, or, without one, as the driver shows them."""
    slot, host = match["slot"], match["host"]
    yield Finding(
        f"DeepSpeed is to use, or to leave out, GPU {slot} of {host}, and counts no such GPU there",
        (record.proof(match, f"a number below the count of GPUs of {host}"),),
        Fix(
            "name GPUs that are there: they count from 0, and as CUDA_VISIBLE_DEVICES leaves them",
            command=f"nvidia-smi -L; grep -n slots hostfile\ndeepspeed --include {host}:0,1 train.py",
        ),
        record.place,
    )
