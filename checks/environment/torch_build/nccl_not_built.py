"""The backend is nccl, and this torch was built without it.

## What happens

"Distributed package doesn't have NCCL built in" is raised by init_process_group("nccl") where torch is a build for
CPU only or for macOS. On a Linux machine with GPUs that is a mishap of the installation: a wheel from the CPU index,
or a package of conda-forge for CPU that another dependency pulled in.

## How to be sure

`python -c "import torch; print(torch.__version__, torch.version.cuda)"` prints None for the CUDA
version.

## How to mend it

Install the CUDA build of torch; without GPUs use the backend gloo.

## Versions and sources

Holds for torch 2.2 to 2.13. On Windows the check nccl-not-on-windows speaks instead. Source: torch's
distributed_c10d.py; torch.distributed documentation, "Backends".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Log, Record, Severity, log_pattern

from ._platform import WINDOWS, windows

AILMENT = Ailment("DDP116", Severity.ERROR)


@log_pattern(r"Distributed package doesn't have NCCL", context=(WINDOWS,))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Speak where nothing shows Windows."""
    if not windows(record, log):
        yield Finding(
            "the process group asks for NCCL, and the installed torch was built without it",
            (record.proof(match, "a build of torch for CUDA"),),
            Fix(
                "install the CUDA build of torch, or use gloo where there is no NVIDIA GPU",
                command="pip install --force-reinstall torch",
                diff='-torch.distributed.init_process_group("nccl")\n+torch.distributed.init_process_group("gloo")',
            ),
            record.place,
        )
