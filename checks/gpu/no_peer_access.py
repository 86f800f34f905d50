"""GPUs cannot read each other's memory.

NCCL then copies through host memory, which is slower; training is right all the same. Typical: consumer cards, GPUs
behind different CPU sockets, virtual machines. Code that insists on peer access fails with "peer access is not
supported between these two devices".

To be sure: `nvidia-smi topo -p2p r`.

Source: NVML, nvmlDeviceGetP2PStatus; NCCL documentation, "NCCL_P2P_LEVEL". Whether advertised access really works is
proven by the check nccl-collectives. Holds for all versions of torch.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor import Card, Evidence, Finding, Fix, NotRun, Severity, Table
from ddpdoctor.check import probe
from ddpdoctor.probe.gpus import Gpus

CARD = Card("DDP211", Severity.NOTE)
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
