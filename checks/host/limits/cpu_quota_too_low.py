"""The container can use less than one core for each rank.

## What happens

A CPU quota stops all processes of the container when they have used it up, until the current period ends. Ranks then
pause at random, and every collective waits for the rank that pauses: the training is slow and its steps take uneven
times. Data loader workers need CPU time in addition to the ranks.

## How to be sure

ddpdoctor compares the quota of the cgroup with the number of ranks and expects at least one core for each.
`cat /sys/fs/cgroup/cpu.stat` shows the effect: nr_throttled grows while the training runs. The finding is a note
where neither LOCAL_WORLD_SIZE nor GPUs nor `--nproc` say how many ranks there will be; ddpdoctor then assumes two.

## How to mend it

Best first: give the container more cores, about four for each rank, `docker run --cpus=8 ...` for two ranks; in
Kubernetes `resources.limits.cpu`. Or start fewer ranks, with fewer data loader workers.

## Versions and sources

Holds for all versions of torch, on Linux. Source: Linux, Documentation/admin-guide/cgroup-v2.rst, "cpu.max".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, NotRun, Severity, probe

if TYPE_CHECKING:
    from ddpdoctor.check import Facts

AILMENT = Ailment("DDP155", Severity.WARNING)


@probe
def quota(facts: Facts) -> Iterator[Finding]:
    """Compare the quota with the number of ranks."""
    granted = facts.limits.cpu_quota
    if granted is None:
        raise NotRun("no CPU quota of a cgroup")
    if granted < facts.ranks:
        yield Finding(
            f"the CPU quota is {granted:g} cores for {facts.ranks} ranks",
            (Evidence(f"{granted:g} cores", f"at least {facts.ranks}", "cgroup"),),
            Fix("give the container more", command=f"docker run --cpus={facts.ranks * 4} ..."),
            severity=Severity.NOTE if facts.ranks_are_assumed else None,
        )
