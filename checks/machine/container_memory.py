"""The container's memory limit leaves little for each rank.

Each rank is a process with its own Python, torch, CUDA context, data loader workers and copy of what the script
loads. When the container's limit is reached, the kernel kills one of them: exit code -9, "Signal 9 (SIGKILL)", and no
word of Python; the other ranks wait for it. The limits of all groups above count; cached files do not.

To be sure, after such a death: `dmesg | grep -i 'killed process'`, or memory.events of the cgroup.

Below 1 GiB for each rank is a warning; so is a limit of which nine tenths are used already. Source: Linux,
Documentation/admin-guide/cgroup-v2.rst; a rank of torch 2.13 with nothing loaded takes about 0.4 GiB.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Evidence, Finding, Fix, NotRun, Severity
from ddpdoctor.check import probe
from ddpdoctor.probe.limits import human

if TYPE_CHECKING:
    from ddpdoctor.probe.facts import Facts

CARD = Card("DDP154", Severity.WARNING)
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
            f"the memory limit of {human(total)} leaves {human(total / facts.ranks)} for each of {facts.ranks} ranks",
            (Evidence(f"limit {human(total)}, used {human(used)}", f"{human(EACH * facts.ranks)} or more", "cgroup"),),
            fix,
        )
    elif used > FULL * total:
        yield Finding(
            f"{human(used)} of the memory limit of {human(total)} are used before the training begins",
            (Evidence(f"used {human(used)}", f"less than {FULL:.0%} of {human(total)}", "cgroup"),),
            fix,
        )
