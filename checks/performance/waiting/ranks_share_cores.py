"""Several ranks are bound to the same few cores, fewer than they are.

## What happens

A process keeps to the cores that it was bound to, by `taskset`, `numactl`, Slurm, the cpuset of a container, or
`os.sched_setaffinity`. Where all ranks are bound to the same core they take turns, while the others of the host have
nothing to do. Slurm gives a task one core unless `--cpus-per-task` says otherwise: all ranks that torchrun starts in
it, and their loaders' workers, share that one. A binding "to the core of the rank" by a number that is 0 on each rank
does the same.

## How to be sure

`taskset -cp PID` of each rank prints the same cores. `ddpdoctor run` looks at that once the ranks make steps: ddpdoctor
finds ranks that are bound to the same cores, fewer than these ranks and fewer than the host has, where each of them
waits for a core a fifth of the time or more.

## How to mend it

Give each rank cores of its own: `--cpus-per-task` of Slurm for all ranks of a task together, other `--cpuset-cpus` of
the container, a binding by `LOCAL_RANK`, or none.

## Versions and sources

Holds for torch 2.2 to 2.13, on Linux. Sources: Linux, sched_setaffinity(2); Slurm, "CPU Management User and
Administrator Guide".
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    Joined,
    Place,
    RankSteps,
    Severity,
    StepsTimed,
    Training,
    watch,
)

from ..._findings.places import line_of_last
from ..._scripts.set_at import set_at
from .._steps import LARGE, middle

AILMENT = Ailment("DDP910", Severity.NOTE)
BINDS = {"sched_setaffinity", "cpu_affinity"}
SHOWN = 4  # ranks
LISTED = 8  # cores


@watch(StepsTimed)
def while_training(event: StepsTimed, training: Training) -> Iterator[Finding]:
    """Compare the cores that ranks are bound to with the number of these ranks."""
    groups: dict[tuple[int, ...], list[RankSteps]] = {}
    for each in event.ranks:
        groups.setdefault(each.bound, []).append(each)
    for cores, ranks in groups.items():
        if not cores or len(ranks) <= len(cores) or min(each.starved for each in ranks) < LARGE:
            continue
        named = f"core{'' if len(cores) == 1 else 's'} {', '.join(map(str, cores[:LISTED]))}"
        host = ranks[0].host_cores
        total = 1e3 * middle(ranks[0], "total")
        least = min(each.starved for each in ranks)
        yield Finding(
            f"{len(ranks)} ranks are bound to {named} of the {host} of this host, and wait for "
            f"{'it' if len(cores) == 1 else 'them'} {least:.0%} of the time",
            tuple(
                Evidence(
                    f"bound to {named}; waits for a core {each.starved:.0%} of the time",
                    "" if at else "cores of its own",
                    f"rank {each.rank}, {each.steps} steps",
                )
                for at, each in enumerate(ranks[:SHOWN])
            ),
            *_fix(
                training,
                f"a step of {total:.0f} ms is {(1 - least) * total:.0f} ms at best where they wait for none",
            ),
        )


def _fix(training: Training, then: str) -> tuple[Fix, Place]:
    """Return what gives each rank cores of its own, and where: the script's own line, else how it is launched."""
    if calls := set_at(training, BINDS):
        first = calls[0]
        return (
            Fix(
                f"the script binds them by {first.call}: let it give each rank other cores, by LOCAL_RANK times the "
                f"cores of a rank, or leave it out; {then}",
                diff=first.without,
            ),
            Place(file=first.file, line=first.line),
        )
    return (
        Fix(
            "give each rank cores of its own: srun --cpus-per-task, docker run --cpuset-cpus, taskset or numactl by "
            f"LOCAL_RANK, or no binding; {then}"
        ),
        line_of_last(Joined, training),
    )
