"""The backend is nccl, and the training runs on Windows.

## What happens

NVIDIA builds NCCL for Linux only, so no torch build for Windows contains it: init_process_group("nccl") raises
"Distributed package doesn't have NCCL built in", whatever is installed. On one GPU no process group is needed at all;
scripts and `accelerate config` that ask for several GPUs still create one.

## How to be sure

The paths of the traceback have drive letters; `torch.distributed.is_nccl_available()` is False.

## How to mend it

Backend gloo, which works on Windows with CUDA tensors; WSL2 or Linux for NCCL; or train in one
process (`accelerate config`: no distributed training).

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch.distributed documentation, "Backends"; torch's distributed_c10d.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Log, Record, Severity, log_pattern

from ._platform import WINDOWS, windows

AILMENT = Ailment("DDP115", Severity.ERROR)


@log_pattern(r"Distributed package doesn't have NCCL", context=(WINDOWS,))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """The same words come from torch builds without NCCL; a drive letter decides."""
    if path := windows(record, log):
        yield Finding(
            "the process group asks for NCCL, which does not exist for Windows",
            (
                record.proof(match, "backend gloo on Windows"),
                Evidence(path.string[path.start() : path.start() + 80].split("\n")[0], "a path of Linux", "a path"),
            ),
            Fix(
                "use gloo, or train in one process; NCCL needs Linux or WSL2",
                diff='-torch.distributed.init_process_group("nccl")\n+torch.distributed.init_process_group("gloo")',
            ),
            record.place,
        )
