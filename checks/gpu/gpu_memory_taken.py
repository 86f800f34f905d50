"""Another process holds a large part of a GPU's memory.

A training that fits on the card runs out of memory on this one rank, and the other ranks then wait for it until
their time-out. Typical: a notebook that is still open, a rank of an earlier run that did not end, another user.

Only processes that hold a tenth of the memory or more are reported; a desktop or a monitoring daemon is not.

To be sure: `nvidia-smi --query-compute-apps=pid,used_memory --format=csv`.

Source: NVML, nvmlDeviceGetComputeRunningProcesses. In a container the processes of other containers show without a
pid; then only the used memory is known. Holds for all versions of torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Evidence, Finding, Fix, Place, Severity
from ddpdoctor.check import probe
from ddpdoctor.probe.limits import human

from ._text import named

if TYPE_CHECKING:
    from ddpdoctor.probe.gpus import Gpus

CARD = Card("DDP205", Severity.WARNING)
SHARE = 0.1  # of the GPU's memory


@probe
def by_whom(gpus: Gpus) -> Iterator[Finding]:
    """Name the processes that hold a GPU's memory."""
    for gpu in gpus.devices:
        if gpu.lost is not None or gpu.memory_used < SHARE * gpu.memory_total:
            continue
        evidence = tuple(
            Evidence(f"pid {pid} ({_owner(pid)}) holds {human(used or gpu.memory_used)}", "nobody", "NVML")
            for pid, used in gpu.processes
            if used is None or used >= SHARE * gpu.memory_total
        )
        if evidence:
            pids = " ".join(str(pid) for pid, _ in gpu.processes)
            yield Finding(
                f"{human(gpu.memory_used)} of {human(gpu.memory_total)} on {named(gpu)} are taken by other processes",
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
