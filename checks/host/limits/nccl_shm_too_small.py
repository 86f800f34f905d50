"""NCCL finds no room in /dev/shm.

## What happens

Between the GPUs of a host that have no peer access, and for its proxy threads, NCCL uses segments of several MB in
/dev/shm. A container has 64 MB there unless it is told otherwise, and data loader workers take their part. NCCL then
reports "Call to posix_fallocate failed : No space left on device" or "Error: failed to extend /dev/shm/nccl-... "
(with NCCL_DEBUG=WARN), then "unhandled system error"; or, where the space is promised and not there, the rank dies by
SIGBUS, exit code -7, with NCCL's functions in the backtrace.

## How to be sure

`df -h /dev/shm` in the container, while the training starts.

## How to mend it

`docker run --ipc=host` or `--shm-size=16g`; on Kubernetes an emptyDir with `medium: Memory` mounted
at /dev/shm. NCCL_SHM_DISABLE=1 is a slow stop-gap.

## Versions and sources

Holds for NCCL 2.4 to 2.30 and torch 2.2 to 2.13, on Linux. Source: NCCL, src/misc/shmutils.cc; NCCL documentation,
"Troubleshooting", "Shared memory".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP162", Severity.ERROR)
FRAMES = r"\bncclGroup(?:Start|End)\b|\bncclCommInit\w|\bncclAll(?:Reduce|Gather)\b|\bncclBroadcast\b|libnccl\.so"
FIX = Fix(
    "give the container more shared memory",
    command="docker run --ipc=host ...   # or --shm-size=16g; on Kubernetes: emptyDir with medium: Memory at /dev/shm",
)
ROOM = "room in /dev/shm"


@log_pattern(
    r"Call to posix_fallocate failed ?: No space left"
    r"|Error: failed to extend (?P<file>/dev/shm/nccl\S*) to (?P<bytes>\d+) bytes(?!, error: (?!No space))"
    r"|Error: failed to create shared memory file \S+, error No space left"
    r"|Error while creating shared memory segment (?P<name>\S+) \(size (?P<size>\d+)\)(?!, error: (?!No space))"
)
def by_its_words(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read NCCL's own complaint; another errno than ENOSPC is another story."""
    wanted = match["bytes"] or match["size"]
    yield Finding(
        f"NCCL found no room in /dev/shm{f' for a segment of {wanted} bytes' if wanted else ''}",
        (record.proof(match, ROOM),),
        FIX,
        record.place,
    )


@log_pattern(
    r"exitcode ?: ?-7\b|Signal 7 \(SIGBUS\)|[Cc]aught signal 7 ?\(Bus error|Signal: Bus error \(7\)",
    context=(FRAMES, r"DataLoader worker"),
)
def by_a_bus_error(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """A bus error is NCCL's only where the backtrace shows its functions."""
    frames = log.first(FRAMES)
    if frames and not log.first(r"DataLoader worker"):
        yield Finding(
            "a rank died by SIGBUS inside NCCL: the memory behind a segment in /dev/shm is not there",
            (
                record.proof(match, "no signal"),
                Evidence(frames[0].proof(frames[1]).seen, ROOM, frames[0].proof(frames[1]).source),
            ),
            FIX,
            record.place,
        )
