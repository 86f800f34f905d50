"""More ranks are planned on this host than it has GPUs, or two ranks share one.

## What happens

With NCCL each rank needs a GPU of its own. The surplus ranks fail with "invalid device ordinal" in set_device. Where
the script takes the rank modulo the number of GPUs, two ranks share a GPU, and NCCL refuses with "Duplicate GPU
detected". With gloo on the CPU alone a surplus does no harm.

## How to be sure

ddpdoctor compares LOCAL_WORLD_SIZE, or LOCAL_RANK, with the number of GPUs that CUDA_VISIBLE_DEVICES leaves visible. It
judges only where the environment has one of the two variables. To verify it by hand, compare the GPUs with
`--nproc_per_node`:

    nvidia-smi -L; echo "$CUDA_VISIBLE_DEVICES" "$LOCAL_RANK" "$SLURM_GPUS_PER_TASK"

In a log that names no rank, two other causes remain: the script names a GPU by a fixed number that is not visible, or
Slurm shows each task one GPU, as number 0.

## How to mend it

Start one rank for each visible GPU; `gpu` stands for as many as there are:

    torchrun --standalone --nproc_per_node=gpu train.py

In the script call `torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))`, and name no GPU by a fixed number.

## Versions and sources

Holds for torch 2.2 and later. Sources: torch.distributed documentation, "Which backend to use"; NCCL documentation,
"Creating a Communicator".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    Gpus,
    Log,
    NotRun,
    Place,
    Record,
    Severity,
    log_pattern,
    probe,
    visible_gpus,
)

from ._slurm import ORDINAL, SLURM, each_sees_one

if TYPE_CHECKING:
    from ddpdoctor.check import Facts

AILMENT = Ailment("DDP212", Severity.ERROR)


@probe
def counted(facts: Facts, gpus: Gpus) -> Iterator[Finding]:
    """Compare the declared local ranks with the GPUs that they would see."""
    seen = len(visible_gpus(facts.environ.get("CUDA_VISIBLE_DEVICES"), gpus))
    for variable, surplus in (("LOCAL_WORLD_SIZE", 0), ("LOCAL_RANK", 1)):
        value = facts.environ.get(variable, "")
        # One visible GPU is how Slurm and Ray bind each rank to a GPU of its own.
        if value.isascii() and value.isdigit() and seen > 1 and int(value) + surplus > seen:
            yield Finding(
                f"{variable}={value}, and a rank sees {seen} GPUs",
                (Evidence(f"{variable}={value}", f"at most {seen - surplus} with {seen} GPUs", "environment"),),
                Fix("start one rank for each GPU", command=f"torchrun --standalone --nproc_per_node={seen} train.py"),
                Place(variable=variable),
            )
            return
    if not any(facts.environ.get(name) for name in ("LOCAL_WORLD_SIZE", "LOCAL_RANK")):
        raise NotRun("the environment does not say how many ranks there are here")


@log_pattern(ORDINAL, context=(SLURM,))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """See which ranks have no GPU of their number; all but rank 0 of a Slurm job are another check's."""
    failed = sorted(log.ranks(ORDINAL))
    if log.first(SLURM) and each_sees_one(log.ranks(ORDINAL)):
        return
    many = f"rank {', '.join(map(str, failed[:8]))}" if failed else "a rank"
    yield Finding(
        f"{many} has no GPU of its number: there are more ranks on this host than visible GPUs",
        (record.proof(match, f"at most {failed[0]} ranks a host" if failed and failed[0] else "a GPU for each rank"),),
        Fix(
            "start one rank for each visible GPU",
            command="torchrun --standalone --nproc_per_node=gpu train.py   # gpu: as many as there are",
        ),
        record.place,
        ambiguity=None
        if failed
        else Ambiguity(
            (
                "more processes were started than there are visible GPUs",
                "the script names a GPU by a fixed number that this host, or CUDA_VISIBLE_DEVICES, does not have",
                "Slurm shows each task one GPU, as number 0",
            ),
            'nvidia-smi -L; echo "$CUDA_VISIBLE_DEVICES" "$LOCAL_RANK" "$SLURM_GPUS_PER_TASK"',
        ),
    )
