"""The container's memory limit leaves little for each rank.

## What happens

Each rank is a process with its own Python, torch, CUDA context, data loader workers and copy of what the script
loads. When the container reaches its memory limit, the Linux kernel kills one of its processes: exit code -9, "Signal
9 (SIGKILL)", and no Python traceback. The other ranks wait for the killed one. The limits of all cgroups above the
process count. Cached files do not count as used memory.

## How to be sure

ddpdoctor compares the limit of the cgroup with the number of ranks. It warns below 1 GiB for each rank, and where
nine tenths of the limit are used before the training begins. After a rank was killed,
`dmesg | grep -i 'killed process'` on the host names it, and the counter `oom_kill` in `/sys/fs/cgroup/memory.events`
is above 0.

## How to mend it

Best first: give the container more memory, `docker run --memory=32g ...`, in Slurm `--mem`, in Kubernetes
`resources.limits`. Or use less: fewer data loader workers, and data that is memory-mapped or read in parts, not
loaded as a whole on every rank.

## Versions and sources

Holds for all versions of torch, on Linux. A rank of torch 2.13 with nothing loaded takes about 0.4 GiB. Source:
Linux, Documentation/admin-guide/cgroup-v2.rst.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, NotRun, Severity, human_size, probe

if TYPE_CHECKING:
    from ddpdoctor.check import Facts

AILMENT = Ailment("DDP154", Severity.WARNING)
EACH = 2**30  # bytes for a rank
FULL = 0.9


@probe
def limit(facts: Facts) -> Iterator[Finding]:
    """Compare the cgroup's limit with the number of ranks, and with what is used."""
    total, used = facts.limits.cgroup_memory, facts.limits.cgroup_memory_used or 0
    if total is None:
        raise NotRun("no memory limit of a cgroup")
    fix = Fix(
        "give the container more", command="docker run --memory=32g ...   # Slurm: --mem, Kubernetes: resources.limits"
    )
    if total < EACH * facts.ranks:
        yield Finding(
            f"the memory limit of {human_size(total)} leaves {human_size(total / facts.ranks)} "
            f"for each of {facts.ranks} ranks",
            (
                Evidence(
                    f"limit {human_size(total)}, used {human_size(used)}",
                    f"{human_size(EACH * facts.ranks)} or more",
                    "cgroup",
                ),
            ),
            fix,
        )
    elif used > FULL * total:
        yield Finding(
            f"{human_size(used)} of the memory limit of {human_size(total)} are used before the training begins",
            (Evidence(f"used {human_size(used)}", f"less than {FULL:.0%} of {human_size(total)}", "cgroup"),),
            fix,
        )
