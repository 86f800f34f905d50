"""A GPU with a time limit for its kernels ended one that waited for the other ranks.

## What happens

A GPU that draws a desktop, and each GPU under Windows in its display mode, has a limit of some seconds for a kernel, so
that the screen does not freeze. A kernel of NCCL or RCCL runs until all ranks have come: one rank that is slow, or
still loads its data, holds it beyond the limit, and the driver ends it and the process's whole CUDA context: "CUDA
error: the launch timed out and was terminated". In a training on one GPU kernels are short, and nothing happens.

## How to be sure

`nvidia-smi` shows `Disp.A On` for the GPU that draws a desktop; CUDA's deviceQuery says "Run time limit on kernels:
Yes" for each GPU that has the limit.

## How to mend it

Train on the GPUs without a display (`CUDA_VISIBLE_DEVICES=1,2`), or end the desktop while it lasts (`sudo systemctl
isolate multi-user.target`). Under Windows raise `TdrDelay` in the registry, or use WSL with another GPU.

## Versions and sources

Holds for torch 2.2 and later: the message is the driver's; not run here. Sources: CUDA Runtime API,
cudaErrorLaunchTimeout (702); Microsoft documentation, "Timeout detection and recovery".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Place, Record, Severity, log_pattern

AILMENT = Ailment("DDP226", Severity.ERROR)
WAITS = re.compile(r"distributed_c10d\.py|ProcessGroupNCCL|NCCL|_sync_params|reducer", re.IGNORECASE)
"""What stands around a kernel that waits for other ranks."""


@log_pattern(
    r"(?:CUDA error|HIP error|[Cc]uda failure(?: \d+)?:?)[: ']{1,3}the launch timed out and was terminated"
    r"|CUDA_ERROR_LAUNCH_TIMEOUT"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Say whose kernel it was, where the frames tell that it waited for others."""
    waits = WAITS.search(record.text)
    yield Finding(
        "the GPU has a time limit for kernels, as one that draws a desktop has, and "
        + ("a kernel that waits for the other ranks ran beyond it" if waits else "a kernel ran beyond it"),
        (record.proof(match, "a GPU without a limit: no display on it"),),
        Fix(
            "train on GPUs that draw no desktop, or end the desktop while the training runs",
            command="nvidia-smi --query-gpu=index,name,display_active --format=csv\n"
            "CUDA_VISIBLE_DEVICES=1,2 torchrun --standalone --nproc_per_node=2 train.py\n"
            "sudo systemctl isolate multi-user.target   # ends the desktop; graphical.target brings it back",
        ),
        Place(rank=record.rank, host=record.node),
    )
