"""A memory-mapped file is shorter than what is read from it.

## What happens

Reading a mapped page beyond the end of its file ends the process by SIGBUS, as a full /dev/shm does: "DataLoader worker
is killed by signal: Bus error", "exitcode: -7". Here the file is a data set (lmdb, np.memmap, mmap'ed safetensors) that
was cut while it was copied, that another process truncates, or whose disk or network file system failed.

## How to be sure

`df -h /dev/shm` shows room, the error comes with num_workers=0 as well, or the stack ends in the
library that maps the file.

## How to mend it

Compare the file's size and checksum with the original, and copy or build it anew.

## Versions and sources

Source: mmap(2), "SIGBUS: attempted access to a page of the buffer that lies beyond the end of the mapped file"; torch's
text for a worker that dies of SIGBUS guesses at shared memory. Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Log, Record, Severity, log_pattern

from .._bus_error import CRASH, DF, DIED, MAPPED, WORKER, ample

AILMENT = Ailment("DDP160", Severity.ERROR)


@log_pattern(f"{WORKER}|{DIED}|{CRASH}", context=(DF, MAPPED), supersedes=("shm-too-small",))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Look for shared memory that suffices, or for a stack that reads a mapped file."""
    room, mapped = ample(log), log.first(MAPPED) if re.search(CRASH, record.text) else None
    if room is None and mapped is None:
        return
    yield Finding(
        "a process read beyond the end of a memory-mapped file (SIGBUS)" + ("; /dev/shm has room" if room else ""),
        (
            record.proof(match, "no bus error"),
            *((room[0].proof(room[1], "a full /dev/shm, if that were the cause"),) if room else ()),
            *((mapped[0].proof(mapped[1], "a file as long as when it was written"),) if mapped else ()),
        ),
        Fix(
            "compare the data file with its original, and copy or build it anew",
            command="ls -l DATA; sha256sum DATA   # on this host and where it came from",
        ),
        record.place,
    )
