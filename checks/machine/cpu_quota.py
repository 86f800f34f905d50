"""The container may use less than one core for each rank.

A CPU quota stops all processes of the container for the rest of a period when it is used up: ranks pause at random,
and every collective waits for the one that pauses. Data loader workers come on top.

To be sure: `cat /sys/fs/cgroup/cpu.stat`: nr_throttled grows while training.

Source: Linux, Documentation/admin-guide/cgroup-v2.rst, "cpu.max". A note where neither
LOCAL_WORLD_SIZE nor GPUs nor --nproc say how many ranks there will be, and two are assumed. Holds
for all versions of torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Evidence, Finding, Fix, NotRun, Severity
from ddpdoctor.check import probe

if TYPE_CHECKING:
    from ddpdoctor.probe.facts import Facts

CARD = Card("DDP155", Severity.WARNING)


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
