"""GPUs cannot read each other's memory.

## What happens

NCCL copies through host memory between these GPUs, which is slower; the results are right all the same. Usual causes:
consumer cards, GPUs behind different CPU sockets, virtual machines.

Code that insists on peer access fails with "peer access is not supported between these two devices". NCCL's "Cuda
failure 217" and "failed to open CUDA IPC handle" say the same. Where a launcher shows each worker one GPU only, NCCL
cannot open the memory of the peer: "transport/p2p.cc ... Cuda failure 'invalid device ordinal'".

## How to be sure

ddpdoctor asks NVML for the peer access of each pair of GPUs. A pair without it is a note. One of the messages in a log
is an error, since the training has stopped. To verify it by hand:

    nvidia-smi topo -p2p r

Whether the access that NVML reports really works is proven by the check nccl-collectives-fail.

## How to mend it

Where the training runs, nothing is to be done; `nvidia-smi topo -m` shows how the GPUs are connected. Where it stops,
let NCCL go through host memory (DeepEP, which goes past NCCL, cannot):

    export NCCL_P2P_DISABLE=1

Code that shares CUDA tensors between processes by itself (CUDA IPC) needs its own setting. Where each worker sees one
GPU only, show every worker all GPUs of the host, and choose by LOCAL_RANK; with Slurm use `--gpus-per-node=8` instead
of `--gpus-per-task=1`.

## Versions and sources

Holds for all versions of torch. Sources: NVML, nvmlDeviceGetP2PStatus; NCCL documentation, "NCCL_P2P_LEVEL".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, NotRun, Record, Severity, Table, log_pattern, probe

if TYPE_CHECKING:
    from ddpdoctor.check import Gpus

AILMENT = Ailment("DDP211", Severity.NOTE)
DEEP_EP = re.compile(r"\bdeep_?ep\b", re.IGNORECASE)
STATUS = {
    1: "the chipset does not support it",
    2: "the GPU does not support it",
    3: "the I/O hub's topology does not support it",
    4: "a registry key disables it",
    5: "not supported",
}


@probe
def by_pair(gpus: Gpus) -> Iterator[Finding]:
    """Ask NVML for each pair."""
    if len(gpus.devices) < 2:  # noqa: PLR2004 - a pair
        raise NotRun("one GPU has no peers")
    without = [
        (gpu.index, other, STATUS[status])
        for gpu in gpus.devices
        for other, status in enumerate(gpu.p2p)
        if status in STATUS and gpu.index < other
    ]
    if without:
        yield Finding(
            f"{len(without)} pairs of GPUs have no peer access: NCCL goes through host memory between them",
            tuple(
                Evidence(f"GPU {one} and GPU {other}: {why}", "peer access", "NVML") for one, other, why in without[:1]
            ),
            Fix("see how the GPUs are connected", command="nvidia-smi topo -m"),
            table=Table(("GPU", "GPU", "why"), tuple(without)),
        )


@log_pattern(r"transport/p2p\.cc:\d+ NCCL WARN Cuda failure (?:101 )?'invalid device ordinal'")
def in_logs_of_one_gpu_each(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """NCCL opens a peer's memory by the peer's device, which a process that sees its own GPU only does not have."""
    yield Finding(
        "a rank does not see the GPU of its peer: NCCL cannot open its memory",
        (record.proof(match, "every rank of a host sees all GPUs of the training"),),
        Fix(
            "show all GPUs of the host to every rank, and choose by LOCAL_RANK; or go through host memory",
            command="srun --gpus-per-node=8 ...   # instead of --gpus-per-task=1\nexport NCCL_P2P_DISABLE=1",
        ),
        record.place,
        severity=Severity.ERROR,
    )


@log_pattern(
    r"peer access is not supported between these two devices|Cuda failure 217\b|failed to open CUDA IPC handle"
    r"|NCCL DIAG \[INFO\] p2p: peer-memory import failed|NCCL WARN hipIpc(?:Get|Open)MemHandle failed"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read CUDA's own words; here something has insisted on peer access."""
    if DEEP_EP.search(record.text):
        yield _of_experts(record, match)
        return
    yield Finding(
        "the training needs peer access between two GPUs, and these have none",
        (record.proof(match, "peer access, or a transport that goes through host memory"),),
        Fix("let NCCL go through host memory", command="export NCCL_P2P_DISABLE=1"),
        record.place,
        severity=Severity.ERROR,
    )


def _of_experts(record: Record, match: re.Match[str]) -> Finding:
    """DeepEP writes into the memory of all GPUs of a host by itself; NCCL's variables do not reach it."""
    return Finding(
        "DeepEP needs peer access between all GPUs of a host, and two of these have none",
        (record.proof(match, "GPUs that are joined by NVLink"),),
        Fix(
            "send the tokens of the experts by NCCL's all-to-all, or train on GPUs with NVLink",
            command="nvidia-smi topo -p2p r   # OK between all pairs\n"
            "... --moe-token-dispatcher-type alltoall   # Megatron; sglang: --moe-a2a-backend none",
        ),
        record.place,
        severity=Severity.ERROR,
    )
