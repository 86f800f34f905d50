"""The ranks of this host together use more OpenMP threads than there are cores.

Each rank runs OMP_NUM_THREADS threads for its CPU operations. torchrun sets it to 1 where it is not set; a value from
a .bashrc or an image stays. Ranks times threads beyond the cores makes the threads wait for each other: data loading
and CPU training become several times slower.

To be sure: `htop` while training: more running threads than cores, and much time in the kernel.

A note where neither LOCAL_WORLD_SIZE nor GPUs nor --nproc say how many ranks there will be here, and two are assumed.
Without torchrun (`python -m`, mp.spawn, srun) and with the variable unset, each rank runs a thread for each core.

Source: torchrun documentation
("Setting OMP_NUM_THREADS"); PyTorch Performance Tuning Guide. Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Evidence, Finding, Fix, NotRun, Place, Severity
from ddpdoctor.check import probe

if TYPE_CHECKING:
    from ddpdoctor.probe.facts import Facts

CARD = Card("DDP108", Severity.WARNING)
SLACK = 1.5  # threads for each core that still do little harm


@probe
def threads_and_cores(facts: Facts) -> Iterator[Finding]:
    """Multiply threads and ranks."""
    value = facts.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    if not (value.isascii() and value.isdigit() and int(value) > 0):
        raise NotRun("OMP_NUM_THREADS is not set")
    cores = min(facts.limits.cpus, facts.limits.cpu_quota or facts.limits.cpus)
    if int(value) > 1 and int(value) * facts.ranks > SLACK * cores:
        best = max(1, int(cores // facts.ranks))
        threads = int(value) * facts.ranks
        yield Finding(
            f"{facts.ranks} ranks with OMP_NUM_THREADS={value} run {threads} threads on {cores:g} cores",
            (
                Evidence(
                    f"{facts.ranks} x {value} threads", f"at most {cores:g}", "environment, CPU affinity and quota"
                ),
            ),
            Fix("give each rank its share", command=f"export OMP_NUM_THREADS={best}"),
            Place(variable="OMP_NUM_THREADS"),
            severity=Severity.NOTE if facts.ranks_are_assumed else None,
        )
