"""A rank waits for a collective of a group that it is no member of: there is no work to wait for.

## What happens

A collective with `async_op=True` returns a work to wait for, on the members of its group. On any other rank torch
prints a warning ("Running all_reduce on global rank 2 which does not belong to the given group."), does nothing and
returns None. The next line ends that rank alone: "AttributeError: 'NoneType' object has no attribute 'wait'", and the
members lose their connection to it.

## How to be sure

`print(dist.get_rank(), dist.get_process_group_ranks(group))` above the call, on the ranks of the group alone; or
`dist.get_rank(group)`, which is -1 on a rank that is no member.

## How to mend it

Let each rank call the collective with the group that has it, or let the others leave call and wait out.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU over gloo. Source: torch/distributed/distributed_c10d.py,
`_warn_not_in_group`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Failed,
    Finding,
    Fix,
    Log,
    PassedOver,
    Record,
    Severity,
    Training,
    log_pattern,
    place,
    watch,
)

AILMENT = Ailment("DDP722", Severity.ERROR)
NO_WORK = r"AttributeError: 'NoneType' object has no attribute '(?:wait|is_completed|get_future)'"
OUTSIDE = r"Running (?P<operation>\w{1,40}) on global rank (?P<rank>\d+) which does not belong to the given"
MEMBERS = Fix(
    "let the members of the group alone call it, or take the group that has this rank",
    diff="-work = dist.all_reduce(tensor, group=group, async_op=True)\n-work.wait()\n"
    "+if dist.get_rank(group) >= 0:\n+    work = dist.all_reduce(tensor, group=group, async_op=True)\n+    work.wait()",
)


@watch(Failed)
def while_training(event: Failed, training: Training) -> Iterator[Finding]:
    """Look whether torch has passed over a call of this rank before."""
    passed = training.of(PassedOver, pid=event.pid)
    if not passed or not re.search(NO_WORK, event.text):
        return
    call = passed[-1]
    yield Finding(
        f"rank {event.rank} waits for {call.operation}, called at {call.site}, of a group that it is no member of: "
        "torch has returned no work there, but None",
        (
            Evidence(event.said, "a member of the group, which gets a work", f"rank {event.rank}"),
            Evidence(f"{call.operation} was passed over", "", f"{call.site}, rank {event.rank}"),
        ),
        MEMBERS,
        place(event.site, rank=event.rank),
    )


@log_pattern(NO_WORK, context=(OUTSIDE,))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Take torch's warning, which names the operation and the rank."""
    told = [
        (each, found) for each, found in log.find(OUTSIDE) if record.rank is None or int(found["rank"]) == record.rank
    ]
    if not told:
        return
    warned, found = told[-1]
    yield Finding(
        f"rank {found['rank']} waits for {found['operation']} of a group that it is no member of: torch has returned "
        "no work there, but None",
        (record.proof(match, "a member of the group, which gets a work"), warned.proof(found)),
        MEMBERS,
        record.place,
    )
