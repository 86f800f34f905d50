"""destroy_process_group is called where there is no process group any more.

## What happens

`destroy_process_group()` without an argument ends the default group. A second call finds none: "AssertionError: Process
group cannot be None", on every rank, behind a training that went well. torchrun calls the job failed, and a scheduler
starts it again. The first call is often a `cleanup()` at the end of a `try`, the second one the same in its `finally`.

## How to be sure

The traceback ends in `destroy_process_group`. In a running training (`ddpdoctor run`) the line of the first call is
known; a log does not show it: there the group was destroyed before, or was never made. In a source (`ddpdoctor lint`)
one way through a function comes to both calls, and to nothing between them that can make a group.

## How to mend it

Destroy the group once, in the `finally`:

    try:
        train()
    finally:
        torch.distributed.destroy_process_group()

## Versions and sources

Seen with torch 2.2 (an AssertionError without words), 2.10 and 2.13. Source:
torch.distributed.distributed_c10d, destroy_process_group.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Evidence,
    Failed,
    Finding,
    Fix,
    Left,
    Record,
    Severity,
    Training,
    lint,
    log_pattern,
    place,
    watch,
)

from ._destroyed import second_calls

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP470", Severity.ERROR)
REFUSED = (
    r'in destroy_process_group\n\s*(?:raise AssertionError\("Process group cannot be None"\)|assert pg is not None)'
)
MEND = Fix(
    "destroy the group once, behind all that communicates",
    diff="-    cleanup()\n finally:\n     cleanup()",
)


@watch(Failed)
def in_training(event: Failed, training: Training) -> Iterator[Finding]:
    """Look where the rank has destroyed its group before."""
    left = [each for each in training.of(Left, pid=event.pid, ended=False) if each.time <= event.time]
    if left and re.search(REFUSED, event.text):
        yield Finding(
            f"destroy_process_group is called a second time; the group has ended at {left[0].site}",
            (
                Evidence(event.said, "one call", f"rank {event.rank}"),
                Evidence(f"destroy_process_group at {left[0].site}", "", f"rank {event.rank}"),
            ),
            MEND,
            place(event.site, rank=event.rank),
        )


@log_pattern(r"AssertionError(?:: Process group cannot be None)?$")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Ask whether destroy_process_group has raised it."""
    if record.frames and record.frames[-1].function == "destroy_process_group":
        yield Finding(
            "destroy_process_group is called where there is no process group",
            (record.proof(match, "one call, in a process that has made a group"),),
            MEND,
            record.place,
            ambiguity=Ambiguity(
                (
                    "the group was destroyed before, by a second call",
                    "this process has made no group: it has started the ranks, or runs alone",
                ),
                "grep -nE 'destroy_process_group|init_process_group' *.py   # or: ddpdoctor lint",
            ),
        )


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a second call on one way through a function."""
    for first, second in second_calls(script):
        yield Finding(
            f"{script.code(second)} destroys the process group a second time: an AssertionError",
            (script.seen(second, "one call"), script.seen(first)),
            Fix("call it once", diff=f"-{script.code(first)}"),
            script.place(second),
        )
