"""Slurm shows each task one GPU only, as number 0.

## What happens

With --gpus-per-task=1 or --gpu-bind every task has a GPU of its own, which CUDA numbers 0 in each. A script that calls
`torch.cuda.set_device(local_rank)` works on local rank 0 and ends with "invalid device ordinal" on all others;
Lightning says "You requested gpu: [0, 1, ...] But your machine only has: [0]". NCCL can lose its direct path between
such GPUs, too.

## How to be sure

`srun nvidia-smi -L` prints one GPU for each task, and only local rank 0 gets through.

## How to mend it

Give the GPUs to the node (--gpus-per-node or --gres=gpu:N, without binding), or use device 0 in every
task.

## Versions and sources

Source: Slurm documentation, "sbatch" (--gpus-per-task, --gpu-bind); Lightning documentation, "Run on a SLURM managed
cluster". Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Log, Record, Severity, log_pattern

from ._slurm import FOUND, ORDINAL, REQUESTED, SLURM, each_sees_one, indices

AILMENT = Ailment("DDP218", Severity.ERROR)
FIX = Fix(
    "give the GPUs to the node, so that every task sees all of them",
    command="#SBATCH --gpus-per-node=8   # in place of --gpus-per-task=1",
)


@log_pattern(REQUESTED, context=(FOUND, SLURM))
def in_lightning(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Look for one visible GPU, number 0, in a job of Slurm."""
    own = re.search(FOUND, record.text)
    where, found = (record, own) if own else log.first(FOUND) or (record, None)
    slurm = log.first(SLURM)
    if found is None or slurm is None or indices(found[1]) != (0,):
        return
    yield Finding(
        f"a Slurm task sees one GPU, and {match[1]} are requested",
        (where.proof(found, match[1]), slurm[0].proof(slurm[1], "a task that sees all GPUs of the node")),
        FIX,
        record.place,
    )


@log_pattern(ORDINAL, context=(SLURM,))
def in_set_device(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """See whether every rank but the first of a Slurm job fails."""
    failed, slurm = log.ranks(ORDINAL), log.first(SLURM)
    if slurm is None or not each_sees_one(failed):
        return
    yield Finding(
        f"ranks {min(failed)} to {max(failed)}, all but 0, have no GPU of their number: each Slurm task sees one",
        (record.proof(match, "one GPU for each local rank"), slurm[0].proof(slurm[1], "a task that sees all GPUs")),
        FIX,
        record.place,
    )
