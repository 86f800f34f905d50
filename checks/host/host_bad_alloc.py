"""An allocation of host memory was refused.

## What happens

Native code got no memory from the operating system: "std::bad_alloc", "DefaultCPUAllocator: can't allocate memory: you
tried to allocate N bytes", Python's MemoryError, or "OSError: [Errno 12] Cannot allocate memory" when a worker is
forked. Unlike the out-of-memory killer this is a refusal: a limit on the address space (`ulimit -v`), no overcommit, or
a size that is absurd since it was read from a damaged file or computed from a wrong shape.

Windows promises memory to each process in advance, and one that loads torch with CUDA asks for gigabytes of it: with
the ranks and the workers of their loaders the page file is soon used up (error 1455).

## How to be sure

The number of bytes in the message next to `free -g`; `ulimit -v` in the shell that starts the ranks.

## How to mend it

A number far above the machine's memory is a wrong size: look at the line that asked. Otherwise load
less in each rank, with fewer workers, or raise the limit. On Windows a larger page file is enough: what is promised is
hardly written.

## Versions and sources

Source: c10/core/CPUAllocator.cpp; malloc(3), Linux's overcommit-accounting; Windows,
ERROR_COMMITMENT_LIMIT. Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, human_size, log_pattern

AILMENT = Ailment("DDP158", Severity.ERROR)
REFUSED = (
    r"(?:DefaultCPUAllocator: (?:can't allocate memory|not enough memory): you tried to allocate (\d+) bytes"
    r"|std::bad_alloc|OSError: \[Errno 12\] Cannot allocate memory|mmap failed with error Cannot allocate memory"
    r"|MemoryError: Unable to allocate ([\d.]+ [KMGTP]iB)|(?:^|\n)(?:[ |]*)(?P<bare>MemoryError)(?:\n|$))"
)
NO_SIZE = 14  # digits of a number of bytes that no host has


@log_pattern(REFUSED)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Yield how much was asked for, where the message says it; not of an object's length that is none."""
    if match["bare"] and not record.frames:  # the word alone, in a line of its own
        return
    if match[1] and len(match[1]) >= NO_SIZE and "_object" in record.text:  # told by collective-order-mismatch
        return
    size = human_size(int(match[1])) if match[1] else match[2]
    yield Finding(
        f"the host refused an allocation of {size}" if size else "the host refused to allocate memory",
        (record.proof(match, "memory for all ranks and their workers"),),
        Fix(
            f"see what grows there, and what the rank keeps of each step: {record.code}"
            if match["bare"] and record.code
            else "compare the size with the machine's memory and the limits; load less in each rank, by fewer workers",
            command="free -g; ulimit -v; cat /proc/sys/vm/overcommit_memory",
        ),
        record.place,
    )


@log_pattern(r"\[WinError 1455\]")
def on_windows(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read the number of the error, whose words are in the language of the system."""
    library = re.search(r'Error loading "(?:[^"\n]*[\\/])?([^"\\/\n]+)"', record.text)
    yield Finding(
        "Windows has no more memory to promise to another process"
        + (f", which was to load {library[1]} of torch" if library else ""),
        (record.proof(match, "a page file for all ranks and their workers"),),
        Fix(
            "make the page file larger (System, Advanced system settings, Performance, Advanced, Virtual memory), or "
            "start fewer workers: each of them loads torch anew",
            diff="-DataLoader(data, num_workers=8)\n+DataLoader(data, num_workers=2, persistent_workers=True)",
        ),
        record.place,
    )
