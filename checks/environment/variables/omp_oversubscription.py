"""The ranks of this host together use more OpenMP threads than there are cores.

## What happens

Each rank runs OMP_NUM_THREADS threads for its CPU operations. torchrun sets the variable to 1 where it is not set; a
value from a .bashrc or an image stays. When ranks times threads exceeds the number of cores, the threads wait for each
other: data loading and CPU training become several times slower.

Without torchrun (`python -m`, mp.spawn, srun) and with the variable unset, each rank runs one thread for each core.

## How to be sure

ddpdoctor multiplies OMP_NUM_THREADS by the number of ranks on this host, and compares the product with the cores that
CPU affinity and quota leave. It reports more than one and a half threads for each core. Where neither LOCAL_WORLD_SIZE
nor GPUs nor `--nproc` say how many ranks there will be, it assumes two, and the finding is a note.

To verify it by hand, run `htop` while training: there are more running threads than cores, and much time in the
kernel.

## How to mend it

Give each rank its share: the cores divided by the ranks. For 16 cores and 4 ranks:

    export OMP_NUM_THREADS=4

Or unset the variable and start with torchrun, which sets 1.

## Versions and sources

Holds for torch 2.2 to 2.13. Sources: torchrun documentation ("Setting OMP_NUM_THREADS"); PyTorch Performance Tuning
Guide.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, NotRun, Place, Severity, probe

if TYPE_CHECKING:
    from ddpdoctor.check import Facts

AILMENT = Ailment("DDP108", Severity.WARNING)
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
