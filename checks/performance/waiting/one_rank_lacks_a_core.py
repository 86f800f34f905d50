"""One rank is kept from its cores, by a quota or by other processes, and the others wait for it.

## What happens

The ranks meet in each backward, and the slowest sets the pace of all. A rank in a container or cgroup with a quota of
half a core computes half of the time. So does one that is bound to a core (taskset, numactl, a NUMA node, Slurm's
`--cpu-bind`) on which another process computes.

## How to be sure

`ddpdoctor run` counts for how long each rank waits for a core (/proc/PID/schedstat), how long the quota of its cgroup
keeps it off its cores (cpu.stat), and who else computes on the cores that a rank is bound to. ddpdoctor finds a rank
that is kept from its cores a fifth of the time or more, and by a fifth more than all others, where the others wait for
it in nearly all of 40 steps or more. A machine on which all ranks wait for cores is no such case.

## How to mend it

Raise the quota (`docker run --cpus`, `resources.limits.cpu` of the pod, `cpu.max`), or end what else computes on these
cores, or bind the ranks to others.

## Versions and sources

Holds for torch 2.2 to 2.13, on Linux. Sources: Linux, Documentation/scheduler/sched-stats.rst and
Documentation/scheduler/sched-bwc.rst.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Joined, RankSteps, Severity, StepsTimed, Training, watch

from ..._findings.places import line_of_last
from .._steps import LARGE, last_in, middle

AILMENT = Ailment("DDP908", Severity.NOTE)
SHOWN = 4  # ranks


@watch(StepsTimed)
def while_training(event: StepsTimed, training: Training) -> Iterator[Finding]:
    """Look for a rank that something keeps from its cores, and nothing the others."""
    late = last_in(event)
    if late is None:
        return
    others = [each for each in event.ranks if each is not late]
    quota = late.throttled - max(each.throttled for each in others)
    taken = sum(part for *_, part in late.beside) - max(sum(part for *_, part in each.beside) for each in others)
    waits = late.starved - max(each.starved for each in others)
    if quota >= LARGE:
        why = f"the quota of its cgroup keeps it off its cores {late.throttled:.0%} of the time"
        fix = "give it the quota of the others: docker run --cpus, resources.limits.cpu of the pod, cpu.max"
        share = quota
    elif taken >= LARGE and waits >= LARGE:
        first = late.beside[0]
        why = f"it is bound to cores on which {first[0]} (process {first[1]}) computes {first[2]:.0%} of the time"
        fix = (
            f"end process {first[1]}, or let it run elsewhere: taskset -cp CORES {first[1]}; or bind the rank to others"
        )
        share = waits
    else:
        return
    total = 1e3 * middle(late, "total")
    yield Finding(
        f"rank {late.rank} is kept from its cores {share:.0%} of the time, and the others wait for it: {why}",
        tuple(_seen(each, "as the others" if at == 0 else "") for at, each in enumerate((late, *others[: SHOWN - 1]))),
        Fix(f"{fix}: a step of {total:.0f} ms is {(1 - share) * total:.0f} ms at best where it computes as the others"),
        replace(line_of_last(Joined, training), rank=late.rank),
    )


def _seen(each: RankSteps, expected: str) -> Evidence:
    beside = "".join(f"; {name} (process {number}) on its cores {part:.0%}" for name, number, part in each.beside)
    text = (
        f"waits for a core {each.starved:.0%} of the time, kept off by a quota {each.throttled:.0%}; it may use "
        f"{each.cpus} core{'' if each.cpus == 1 else 's'}{beside}"
    )
    return Evidence(text, expected, f"rank {each.rank}, {each.steps} steps")
