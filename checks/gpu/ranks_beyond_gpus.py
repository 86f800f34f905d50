"""More ranks are planned on this host than it has GPUs, or two ranks share one.

With NCCL each rank needs a GPU of its own: the surplus ranks fail with "invalid device ordinal" in set_device, or,
where the script takes the rank modulo the number of GPUs, NCCL refuses with "Duplicate GPU detected".

To be sure: compare `nvidia-smi -L` with --nproc_per_node, and with CUDA_VISIBLE_DEVICES.

Judged only where the environment says how many ranks there are (LOCAL_WORLD_SIZE, or LOCAL_RANK). With gloo on CPU
alone a surplus does no harm. Source: torch.distributed documentation, "Which backend to use"; NCCL documentation,
"Creating a Communicator". Holds for torch 2.2 and later.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Doubt, Evidence, Finding, Fix, NotRun, Place, Severity
from ddpdoctor.check import probe, sign
from ddpdoctor.explain.records import Log, Record
from ddpdoctor.probe.gpus import Gpus, visible

from ._slurm import ORDINAL, SLURM

if TYPE_CHECKING:
    from ddpdoctor.probe.facts import Facts

CARD = Card("DDP212", Severity.ERROR, known_as=("nproc-exceeds-gpus",))


@probe
def counted(facts: Facts, gpus: Gpus) -> Iterator[Finding]:
    """Compare the declared local ranks with the GPUs that they would see."""
    seen = len(visible(facts.environ.get("CUDA_VISIBLE_DEVICES"), gpus))
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


@sign(ORDINAL, beside=(SLURM,), explains=("worker-error-hidden-by-launcher",))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """See which ranks have no GPU of their number; all but rank 0 of a Slurm job are another check's."""
    failed = sorted(log.ranks(ORDINAL))
    if log.first(SLURM) and failed[:1] == [1] and len(failed) == failed[-1] > 2:  # noqa: PLR2004 - 1 and 2 prove little
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
        doubt=None
        if failed
        else Doubt(
            (
                "more processes were started than there are visible GPUs",
                "the script names a GPU by a fixed number that this host, or CUDA_VISIBLE_DEVICES, does not have",
                "Slurm shows each task one GPU, as number 0",
            ),
            'nvidia-smi -L; echo "$CUDA_VISIBLE_DEVICES" "$LOCAL_RANK" "$SLURM_GPUS_PER_TASK"',
        ),
    )
