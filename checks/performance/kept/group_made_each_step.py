"""A process group is made again and again for the same ranks, and each one opens its own connections.

## What happens

`dist.new_group(...)` is a meeting of all ranks: they agree over the store, and connect to each other anew, which takes
milliseconds to seconds. None of these groups is ever freed: connections, threads and, with NCCL, memory of the GPU
become more with each, until there are none left.

## How to be sure

ddpdoctor finds a line that has made a group of the same ranks ten times, while optimizers stepped between them.

## How to mend it

Make the group once, before the loop, and hand it on. A group of all ranks is there already: leave `group` out.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: PyTorch documentation, `torch.distributed.new_group`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    GroupMade,
    Severity,
    StepFingerprinted,
    Training,
    place,
    watch,
)

AILMENT = Ailment("DDP922", Severity.WARNING)
TIMES = 10
STEPS = 4  # of those that are compared, between the first of these groups and the last


@watch(GroupMade)
def while_training(event: GroupMade, training: Training) -> Iterator[Finding]:
    """Count the groups of the same ranks that one line has made, and whether steps were made between them."""
    made = training.of(GroupMade, pid=event.pid, ranks=event.ranks, site=event.site)
    if len(made) != TIMES or event.site is None:
        return
    if any(each.site == event.site and each.pid < event.pid for each in training.of(GroupMade)):
        return
    times = [each.time for each in training.of(StepFingerprinted, pid=event.pid)]
    if sum(made[0].time < each < event.time for each in times) < STEPS:
        return
    yield Finding(
        f"a process group of {'all ranks' if event.ranks == 'all ranks' else f'the ranks {event.ranks}'} is made again "
        "and again, and none is freed",
        (Evidence(f"{TIMES} groups of the same ranks, with steps between them", "1", f"rank {event.rank}"),),
        Fix(
            "make it once, before the loop; for all ranks leave group=... out",
            diff="+group = dist.new_group(ranks)\n for batch in loader:\n-    group = dist.new_group(ranks)",
        ),
        place(event.site),
    )
