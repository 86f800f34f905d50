# ruff: noqa: S108 - the directory is what this check is about
"""/dev/shm is too small for data-parallel training.

Data loader workers hand their batches over in shared memory, and NCCL uses it between the GPUs of a host. A container
has 64 MiB of it unless it is told otherwise: a worker is then "killed by signal: Bus error", or NCCL reports "Error
while creating shared memory segment" and the rank dies by SIGBUS (exit code -7).

To be sure: `df -h /dev/shm`.

Below 64 MiB for each rank is a warning. With 64 MiB or less in all, or without /dev/shm, two GPUs or more cannot be
served: an error there. Source: PyTorch's README ("use --ipc=host or --shm-size"); NCCL documentation, "Shared
Memory". Holds for torch 2.2 to 2.13, on Linux.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor import Card, Evidence, Finding, Fix, NotRun, Severity
from ddpdoctor.check import probe
from ddpdoctor.probe.facts import Facts
from ddpdoctor.probe.limits import human

CARD = Card("DDP151", Severity.WARNING)
EACH = 64 * 2**20  # bytes for a rank: the whole of a container's default


@probe
def size(facts: Facts) -> Iterator[Finding]:
    """Compare the size with the number of ranks."""
    if not facts.versions.system.startswith("Linux"):
        raise NotRun("only Linux has /dev/shm")
    total = facts.limits.shm_total
    if total is None or total < EACH * facts.ranks:
        said = "there is no /dev/shm" if total is None else f"/dev/shm holds {human(total)}"
        yield Finding(
            f"{said}, for {facts.ranks} ranks and their data loader workers",
            (Evidence(said, f"{human(EACH * facts.ranks)} or more", "/dev/shm"),),
            Fix("give the container more", command="docker run --ipc=host ...   # or --shm-size=16g"),
            severity=Severity.ERROR if len(facts.gpus.devices) > 1 and (total or 0) <= EACH else None,
        )
    elif (facts.limits.shm_free or 0) < EACH:
        yield Finding(
            f"{human(facts.limits.shm_free or 0)} of {human(total)} are free in /dev/shm",
            (Evidence(f"{human(facts.limits.shm_free or 0)} free", f"{human(EACH)} or more", "/dev/shm"),),
            Fix("see what an earlier run left there, and delete it", command="ls -lah /dev/shm"),
        )
