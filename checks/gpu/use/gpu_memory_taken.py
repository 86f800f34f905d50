"""Another process holds a large part of a GPU's memory.

## What happens

A training that fits on the card runs out of memory on this one rank, and the other ranks then wait for it until their
time-out. Usual causes: a notebook that is still open, a rank of an earlier run that did not end, another user.

## How to be sure

ddpdoctor reads from NVML the used memory of each GPU and the processes that hold it. It reports processes that hold a
tenth of the memory or more; a desktop or a monitoring daemon holds less. In a container the processes of other
containers show without a pid, and only the used memory is known. To verify it by hand:

    nvidia-smi --query-compute-apps=pid,used_memory --format=csv

## How to mend it

Look at the processes with the pids of the finding, and end those that are yours with `kill PID`:

    ps -o pid,user,etime,args -p PID

Where a process belongs to somebody else, choose other GPUs by CUDA_VISIBLE_DEVICES.

## Versions and sources

Holds for all versions of torch. Source: NVML, nvmlDeviceGetComputeRunningProcesses.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Place, Severity, human_size, probe

from .._text import named

if TYPE_CHECKING:
    from ddpdoctor.check import Gpus

AILMENT = Ailment("DDP205", Severity.WARNING)
SHARE = 0.1  # of the GPU's memory


@probe
def by_whom(gpus: Gpus) -> Iterator[Finding]:
    """Yield the name of the processes that hold a GPU's memory."""
    for gpu in gpus.devices:
        if gpu.lost is not None or gpu.memory_used < SHARE * gpu.memory_total:
            continue
        evidence = tuple(
            Evidence(f"pid {pid} ({_owner(pid)}) holds {human_size(used or gpu.memory_used)}", "nobody", "NVML")
            for pid, used in gpu.processes
            if used is None or used >= SHARE * gpu.memory_total
        )
        if evidence:
            pids = " ".join(str(pid) for pid, _ in gpu.processes)
            yield Finding(
                f"{human_size(gpu.memory_used)} of {human_size(gpu.memory_total)} on {named(gpu)} "
                "are taken by other processes",
                evidence,
                Fix("look at them, and end those that are yours", command=f"ps -o pid,user,etime,args -p {pids}"),
                Place(gpu=gpu.index),
            )


def _owner(pid: int) -> str:
    import psutil

    try:
        process = psutil.Process(pid)
        return f"{process.username()}: {' '.join(process.cmdline())[:80] or process.name()}"
    except psutil.Error:
        return "of another container or user"
