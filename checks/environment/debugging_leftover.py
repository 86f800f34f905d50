"""A variable that was set for debugging makes every step slower, or hides a fault.

CUDA_LAUNCH_BLOCKING=1 waits after each kernel; NCCL_P2P_DISABLE, NCCL_SHM_DISABLE and NCCL_IB_DISABLE take NCCL's
fast paths away; TORCH_NCCL_BLOCKING_WAIT=1 blocks the CPU in each collective; NCCL_DEBUG=TRACE and
TORCH_DISTRIBUTED_DEBUG=DETAIL log or check every collective; TORCH_NCCL_ASYNC_ERROR_HANDLING=0 lets the others wait
for ever when a rank fails. They are right for an hour of debugging, and are
forgotten in a .bashrc or an image.

A variable that works around a real fault (P2P that is broken on this board) is to stay: the check nccl-collectives
proves whether it is needed.

To be sure: measure a hundred steps with the variable and without.

Source: CUDA C++ Programming Guide; NCCL documentation, "Environment Variables" (each marked as for debugging);
torch.distributed documentation, "Debugging torch.distributed applications". Where this host has nothing that the
variable takes away (no GPUs, no InfiniBand, no peer access) it is a note. Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Evidence, Finding, Fix, Place, Severity
from ddpdoctor.check import probe

if TYPE_CHECKING:
    from ddpdoctor.probe.facts import Facts

CARD = Card("DDP106", Severity.WARNING)
LEFTOVERS = {
    ("CUDA_LAUNCH_BLOCKING", "1"): "the CPU waits for the GPU after each kernel",
    ("NCCL_P2P_DISABLE", "1"): "GPUs exchange gradients through host memory, not directly",
    ("NCCL_SHM_DISABLE", "1"): "GPUs without P2P exchange gradients through the network",
    ("NCCL_IB_DISABLE", "1"): "InfiniBand is left idle, and sockets are used",
    ("NCCL_DEBUG", "TRACE"): "NCCL logs each call",
    ("TORCH_NCCL_BLOCKING_WAIT", "1"): "the CPU blocks in each collective, nothing overlaps",
    ("NCCL_BLOCKING_WAIT", "1"): "the CPU blocks in each collective, nothing overlaps",
    ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"): "a rank that fails or hangs leaves the others waiting for ever",
    ("NCCL_ASYNC_ERROR_HANDLING", "0"): "a rank that fails or hangs leaves the others waiting for ever",
    ("NCCL_CHECK_POINTERS", "1"): "NCCL checks each pointer of each call",
    ("TORCH_DISTRIBUTED_DEBUG", "DETAIL"): "each collective is checked by one more collective",
    ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"): "each tensor is allocated by cudaMalloc, which stops the GPU",
}


@probe
def in_the_environment(facts: Facts) -> Iterator[Finding]:
    """Look for the known left-overs."""
    for (name, value), effect in LEFTOVERS.items():
        if facts.environ.get(name, "").strip().upper() == value:
            yield Finding(
                f"{name}={value} is in force: {effect}",
                (Evidence(f"{name}={facts.environ[name]}", "not set, while training", "environment"),),
                Fix("take it away when the debugging is done", command=f"unset {name}"),
                Place(variable=name),
                severity=None if _matters(name, facts) else Severity.NOTE,
            )


def _matters(name: str, facts: Facts) -> bool:
    """Tell whether the variable takes something away that this host has."""
    match name:
        case "TORCH_DISTRIBUTED_DEBUG":
            return True
        case "NCCL_IB_DISABLE":
            return bool(facts.gpus.devices and facts.limits.rdma_devices)
        case "NCCL_P2P_DISABLE":
            return any(status == 0 for gpu in facts.gpus.devices for status in gpu.p2p)
        case "NCCL_SHM_DISABLE":
            return len(facts.gpus.devices) > 1
        case _:
            return bool(facts.gpus.devices)
