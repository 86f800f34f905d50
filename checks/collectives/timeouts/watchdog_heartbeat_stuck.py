"""A watchdog thread stands still, and its own monitor ends the process.

## What happens

ProcessGroupNCCL has a thread that watches the collectives, and another one that watches the first. When the first
makes no progress for TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC (480 s; 600 in torch 2.2 to 2.4), the second says "Heartbeat
monitor timed out! Process will be terminated after dumping debug info" or "ProcessGroupNCCL's watchdog got stuck for
480 seconds without making progress in monitoring enqueued collectives", and ends the process. The first thread is
blocked in a call into CUDA or NCCL, mostly because another rank is gone or elsewhere: in most logs this is a
consequence.

## How to be sure

Run `py-spy dump --native --pid PID` on every rank while it hangs. Look for an earlier error, and for ranks that print
no such line.

## How to mend it

Mend the rank that differs. A longer TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC helps only where a call is slow.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch's ProcessGroupNCCL.cpp, HeartbeatMonitor; torch.distributed documentation,
"ProcessGroupNCCL environment variables".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Role, Severity, log_pattern

from ._heartbeat import BESIDE, HEART, alone

AILMENT = Ailment("DDP718", Severity.ERROR)


@log_pattern(HEART, role=Role.GENERIC, context=BESIDE)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Report it once, where nothing else in the log explains it."""
    if not alone(record, log):
        return
    ranks = ", ".join(map(str, sorted(log.ranks(HEART)))) or "unknown"
    yield Finding(
        f"the watchdog made no progress on rank {ranks}: a CUDA or NCCL call does not return",
        (record.proof(match, "the watchdog makes progress"),),
        Fix(
            "see in which call each rank is, and mend the one that differs",
            command="py-spy dump --native --pid PID   # of every rank\nexport TORCH_NCCL_TRACE_BUFFER_SIZE=20000",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the ranks are in different places: other collectives, or another number of batches",
                "a rank has died or hangs, and the others wait inside NCCL",
                "another thread holds the GIL inside a CUDA call",
            ),
            "py-spy dump --native --pid PID   # of every rank, while they hang",
        ),
    )
