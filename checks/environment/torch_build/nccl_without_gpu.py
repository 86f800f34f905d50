"""The backend is nccl, and the process sees no GPU.

## What happens

"ProcessGroupNCCL is only supported with GPUs, no GPUs found!" is raised where a process group of NCCL is made and
torch counts no CUDA device. NCCL moves memory of GPUs only. Either the process has lost its GPUs (CUDA_VISIBLE_DEVICES
is empty, the container was started without them, the job did not request any, the driver fails), or the machine has
none and the script asks for nccl all the same.

## How to be sure

`python -c "import torch; print(torch.cuda.device_count())"` in the same environment prints 0;
`nvidia-smi -L` says what the machine has.

## How to mend it

Give the process its GPUs; for a machine without any let the script choose gloo.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch's ProcessGroupNCCL.cpp, the
constructor; torch.distributed documentation, "Backends".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP117", Severity.ERROR)


@log_pattern(r"ProcessGroupNCCL is only supported with GPUs, no GPUs found")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read what the constructor of the process group says."""
    yield Finding(
        "the process group asks for NCCL, and this process sees no GPU",
        (record.proof(match, "one GPU or more for each rank"),),
        Fix(
            "give the process its GPUs, or use gloo on a machine that has none",
            command='nvidia-smi -L; echo "CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES"',
            diff='-dist.init_process_group("nccl")\n'
            '+dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")',
        ),
        record.place,
    )
