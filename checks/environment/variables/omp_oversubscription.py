"""The ranks of this host together use more OpenMP threads than there are cores.

## What happens

Each rank runs OMP_NUM_THREADS threads for its CPU operations. torchrun sets the variable to 1 where it is not set; a
value from a .bashrc or an image stays. When ranks times threads exceeds the number of cores, the threads wait for each
other: data loading and CPU training become several times slower.

Without torchrun (`python -m`, mp.spawn, srun) and with the variable unset, each rank runs one thread for each core.

## How to be sure

ddpdoctor multiplies OMP_NUM_THREADS by the number of ranks on this host, and compares the product with the cores that
CPU affinity and quota leave. It reports more than one and a half threads for each core. `ddpdoctor run` counts the
threads that torch was set to on each rank (`torch.get_num_threads()`), and says so where they are four or more for each
core, and each rank waits for a core a fifth of the time. Where neither LOCAL_WORLD_SIZE nor GPUs nor `--nproc` say how
many ranks there will be, it assumes two, and the finding is a note.

To verify it by hand, run `htop` while training: there are more running threads than cores, and much time in the
kernel.

## How to mend it

Give each rank its share: the cores divided by the ranks. For 16 cores and 4 ranks:

    export OMP_NUM_THREADS=4

Where the script calls `torch.set_num_threads`, that counts, and no variable does: change it there. Or unset the
variable and start with torchrun, which sets 1.

## Versions and sources

Holds for torch 2.2 to 2.13. Sources: torchrun documentation ("Setting OMP_NUM_THREADS"); PyTorch Performance Tuning
Guide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    Joined,
    NotRun,
    Place,
    Severity,
    StepsTimed,
    Training,
    place,
    probe,
    watch,
)

from ..._scripts.set_at import set_at

if TYPE_CHECKING:
    from ddpdoctor.check import Facts

AILMENT = Ailment("DDP108", Severity.WARNING)
SLACK = 1.5  # threads for each core that still do little harm
FAR, WAITS = 4, 0.2  # threads for each core that do harm; share of the time in which a rank has no core
ONE = re.compile(r"\(1\)$")  # as for the workers of a loader: it is not what has set more
SHOWN = 4  # ranks


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


@watch(StepsTimed)
def while_training(event: StepsTimed, training: Training) -> Iterator[Finding]:
    """Add up the threads that torch computes with on each rank."""
    ranks = event.ranks
    bound = {core for each in ranks for core in each.bound}
    cores = len(bound) if all(each.bound for each in ranks) else max((each.host_cores for each in ranks), default=0)
    threads = sum(each.threads for each in ranks)
    if not cores or threads < FAR * cores or threads <= len(ranks) or min(each.starved for each in ranks) < WAITS:
        return
    best = max(1, cores // len(ranks))
    yield Finding(
        f"{len(ranks)} rank{'s' if ranks[1:] else ''} compute with {threads} threads on {cores} "
        f"core{'s' if cores > 1 else ''}",
        tuple(
            Evidence(
                f"torch.get_num_threads() is {each.threads}; waits for a core {each.starved:.0%} of the time",
                "" if at else f"{best} of {cores} cores",
                f"rank {each.rank}, {each.steps} steps",
            )
            for at, each in enumerate(ranks[:SHOWN])
        ),
        *_fix(training, best),
        severity=Severity.NOTE,
    )


def _fix(training: Training, best: int) -> tuple[Fix, Place]:
    """Return what gives each rank so many threads, and where: the script's own line, which no variable changes."""
    said = f"give each rank its share, {best} thread{'' if best == 1 else 's'}"
    if calls := [each for each in set_at(training, {"set_num_threads"}) if not ONE.search(each.call)]:
        first, others = calls[0], [f"{each.file}:{each.line}" for each in calls[1:]]
        also = f", and at {' and '.join(others)}" if others else ""
        return (
            Fix(
                f"{said}, where the script sets them{also}: OMP_NUM_THREADS does not change what it sets",
                diff=first.instead(f"torch.set_num_threads({best})"),
            ),
            Place(file=first.file, line=first.line),
        )
    where = next((replace(place(each.site), variable="OMP_NUM_THREADS") for each in training.of(Joined)), Place())
    return Fix(said, command=f"export OMP_NUM_THREADS={best}"), where
