"""GPUs cannot read each other's memory.

NCCL then copies through host memory, which is slower; training is right all the same. Typical: consumer cards, GPUs
behind different CPU sockets, virtual machines. Code that insists on peer access fails with "peer access is not
supported between these two devices".

To be sure: `nvidia-smi topo -p2p r`.

In a log the message, or NCCL's "Cuda failure 217" and "failed to open CUDA IPC handle", is an error: the training has
stopped. NCCL_P2P_DISABLE=1 makes NCCL go through host memory; code that shares CUDA tensors between processes by
itself (CUDA IPC) must be told by its own setting. Where a launcher shows each worker one GPU only, show it all.

Source: NVML, nvmlDeviceGetP2PStatus; NCCL documentation, "NCCL_P2P_LEVEL". Whether advertised access really works is
proven by the check nccl-collectives. Holds for all versions of torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Evidence, Finding, Fix, NotRun, Severity, Table
from ddpdoctor.check import probe, sign
from ddpdoctor.explain.records import Record

if TYPE_CHECKING:
    from ddpdoctor.probe.gpus import Gpus

CARD = Card("DDP211", Severity.NOTE, known_as=("gpu-p2p-unsupported",))
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


@sign(
    r"transport/p2p\.cc:\d+ NCCL WARN Cuda failure (?:101 )?'invalid device ordinal'",
    explains=("nccl-unhandled-cuda-unspecified", "remote-rank-died-or-network", "collective-timeout"),
)
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


@sign(
    r"peer access is not supported between these two devices|Cuda failure 217\b|failed to open CUDA IPC handle"
    r"|NCCL DIAG \[INFO\] p2p: peer-memory import failed",
    explains=("nccl-unhandled-cuda-unspecified", "remote-rank-died-or-network", "collective-timeout"),
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read CUDA's own words; here something has insisted on peer access."""
    yield Finding(
        "the training needs peer access between two GPUs, and these have none",
        (record.proof(match, "peer access, or a transport that goes through host memory"),),
        Fix("let NCCL go through host memory", command="export NCCL_P2P_DISABLE=1"),
        record.place,
        severity=Severity.ERROR,
    )
