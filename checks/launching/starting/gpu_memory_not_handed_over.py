"""A container does not let one process hand its GPU memory to another.

## What happens

Processes of one host share tensors on a GPU (a trainer and its inference engine, workers of a pool) by a file
descriptor that the one opens in the other: pidfd_getfd, which Linux allows to whom may trace that process. A container
without that right ends it with "RuntimeError: pidfd_getfd: Operation not permitted", in torch's rebuild_cuda_tensor.
`expandable_segments:True` is what makes torch share memory in this way; other memory goes by CUDA's own handles.

## How to be sure

`cat /proc/sys/kernel/yama/ptrace_scope` (0 allows it to processes of one user), and `grep CapEff /proc/self/status` in
the container.

## How to mend it

Give the container the right (`--cap-add=SYS_PTRACE`), or leave the expandable segments out.

## Versions and sources

Holds for torch 2.5 and later on Linux 5.6 and later. Source: torch, c10/cuda/CUDACachingAllocator.cpp, and
pidfd_getfd(2); verl-project/verl#2846; not run here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP1497", Severity.ERROR)


@log_pattern(r"pidfd_(?:getfd|open): (?P<why>Operation not permitted|Permission denied|Function not implemented)")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Say which right is missing, or that the kernel is too old."""
    old = match["why"].startswith("Function")
    yield Finding(
        "one process is to hand its GPU memory to another, and "
        + ("the kernel is older than the call for it (Linux 5.6)" if old else "the container does not allow it")
        + f": {match['why']}",
        (record.proof(match, "a process of the same user may take the descriptor (ptrace)"),),
        Fix(
            "do without that kind of memory"
            if old
            else "give the container the right to trace its own processes, or do without that kind of memory",
            command="export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False   # in all processes"
            if old
            else "docker run --cap-add=SYS_PTRACE ...   # Kubernetes: securityContext.capabilities.add\n"
            "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False   # or this, in all processes",
        ),
        record.place,
    )
