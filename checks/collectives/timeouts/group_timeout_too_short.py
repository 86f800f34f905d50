"""The time-out of a process group is a few seconds.

## What happens

`init_process_group(timeout=timedelta(seconds=1))` says how long a rank waits in any collective for the slowest one. The
first batch, a compilation, a checkpoint that rank 0 writes, or a busy host takes longer, and the ranks that wait end
with the message of a lost peer. The defaults are 30 minutes for gloo and 10 for NCCL. `timedelta(60)` is 60 days, and
`timedelta(milliseconds=30)` no minutes at all.

## How to be sure

The message gives the time-out that has passed: "Timed out waiting 1000ms", "Timeout(ms)=1000".

## How to mend it

Leave the time-out out, or set it above the slowest thing that one rank does alone:
`timeout=timedelta(minutes=30)`. To find a rank that never comes, `ddpdoctor run` needs no short time-out.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 and gloo. Source: init_process_group's documentation, "timeout".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP705", Severity.ERROR)


WAITED = (
    r"Timed out waiting (?P<gloo>\d{1,4})ms for (?:recv|send) operation to complete"
    r"|WorkNCCL\([^\n)]{0,200}Timeout\(ms\)=(?P<nccl>\d{1,4})\)"
)
FEW = 5  # seconds: ordinary work of one rank takes as long


@log_pattern(WAITED, waits=True)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Read a time-out of a few seconds, where one rank waited: of several, the places where they did tell more."""
    seconds = int(match["gloo"] or match["nccl"]) / 1000
    if seconds > FEW or len({each.rank for each, _ in log.find(WAITED)}) > 1:
        return
    yield Finding(
        f"this rank waited for another one until the group's time-out, which is {seconds:g} s",
        (record.proof(match, "a time-out above what one rank can do alone: 30 minutes is gloo's own"),),
        Fix(
            "leave the time-out out, or make it longer than a rank can take between two collectives",
            diff=f"-dist.init_process_group(backend, timeout=timedelta(seconds={seconds:g}))\n"
            "+dist.init_process_group(backend, timeout=timedelta(minutes=30))",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                f"a rank works longer than {seconds:g} s: data, compilation, a checkpoint, a busy host",
                "a rank died, or does not call this collective at all",
            ),
            "ddpdoctor run -- torchrun ...   # with a longer time-out: names a rank that does not come",
        ),
    )
