"""A file on a network file system was replaced or removed while a rank had it open.

## What happens

NFS knows files by a handle. When another host deletes or replaces a file, or the export is mounted anew, a process
that has it open gets "OSError: [Errno 116] Stale file handle" on its next access: data shards that a clean-up removed,
a cache that another job rewrites, a checkpoint that rank 0 replaces while others read it.

## How to be sure

The traceback names the file, or the line that reads it. `mount | grep nfs` shows which folders are on NFS.

## How to mend it

Write under a new name and rename at the end, keep files until all ranks have read them (a barrier), or copy the data
to a local disk before training. After the server was restarted, mount the export anew.

## Versions and sources

Holds for Linux, whatever the torch. Source: Linux man-pages, errno(3), ESTALE.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP163", Severity.ERROR)


@log_pattern(r"OSError: \[Errno 116\] Stale file handle(?:: '(?P<path>[^'\n]{1,300})')?")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the file where the message does; a cache of compiled kernels is another check's."""
    path = match["path"]
    if re.search(r"triton|inductor", record.text):
        return
    yield Finding(
        f"{path} was replaced or removed on its server while this rank used it"
        if path
        else "a file on a network file system was replaced or removed while this rank used it",
        (record.proof(match, "a file that stays until all ranks have read it"),),
        Fix(
            "let all ranks read before the file is replaced, or read from a local copy",
            diff="+dist.barrier()   # all ranks have read\n if dist.get_rank() == 0:\n     os.replace(new, path)",
        ),
        record.place,
    )
