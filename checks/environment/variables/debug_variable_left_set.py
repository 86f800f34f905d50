"""A variable that was set for debugging makes every step slower, or hides a fault.

## What happens

The variable is right for an hour of debugging. Then it is forgotten in a .bashrc or an image, and each training pays:

- CUDA_LAUNCH_BLOCKING=1: the CPU waits for the GPU after each kernel.
- NCCL_P2P_DISABLE=1, NCCL_SHM_DISABLE=1, NCCL_IB_DISABLE=1: NCCL does not use its fast paths.
- TORCH_NCCL_BLOCKING_WAIT=1: the CPU blocks in each collective, and nothing overlaps.
- NCCL_DEBUG=TRACE, NCCL_CHECK_POINTERS=1: NCCL logs or checks each call.
- TORCH_DISTRIBUTED_DEBUG=DETAIL: each collective is checked by one more collective.
- PYTORCH_NO_CUDA_MEMORY_CACHING=1: each tensor is allocated by cudaMalloc, which stops the GPU.
- TORCH_NCCL_ASYNC_ERROR_HANDLING=0: a rank that fails or hangs leaves the others waiting for ever.

## How to be sure

ddpdoctor compares the environment with these values. Where this host has nothing that the variable switches off (no
GPUs, no InfiniBand, no peer access), the finding is a note. Measure a hundred steps with the variable and without it.

A variable that works around a real fault (peer access that is broken on this board, for example) must stay. The check
nccl-collectives-fail proves whether it is needed.

## How to mend it

Unset the variable when the debugging is done, and delete it from the .bashrc, the job script or the image:

    unset CUDA_LAUNCH_BLOCKING

## Versions and sources

Holds for torch 2.2 to 2.13. Sources: CUDA C++ Programming Guide; NCCL documentation, "Environment Variables" (each
marked as for debugging); torch.distributed documentation, "Debugging torch.distributed applications".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Place, Severity, probe

if TYPE_CHECKING:
    from ddpdoctor.check import Facts

AILMENT = Ailment("DDP106", Severity.WARNING)
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
                f"{name}={value} is set: {effect}",
                (Evidence(f"{name}={facts.environ[name]}", "not set, while training", "environment"),),
                Fix("take it away when the debugging is done", command=f"unset {name}"),
                Place(variable=name),
                severity=None if _matters(name, facts) else Severity.NOTE,
            )


def _matters(name: str, facts: Facts) -> bool:
    """Whether the variable takes something away that this host has."""
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
