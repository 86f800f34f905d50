"""A host cannot write to the folder that the training saves to.

## What happens

The folder is not mounted, is read-only, full, or of another user on one host. The training starts, and the first save
of that host raises `OSError: [Errno 28] No space left on device` or `PermissionError`, after the first epoch; the
other hosts wait for its ranks until the time-out.

## How to be sure

`ddpdoctor check --save-folder FOLDER` on all hosts writes a small file there and removes it. By hand: `touch
FOLDER/x`.

## How to mend it

Mount the folder, make it, make room (`df -h FOLDER`) or give it to the user who trains: `sudo chown $USER FOLDER`.

## Versions and sources

Holds for all versions of torch. Source: open(2).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    Log,
    NotRun,
    Place,
    Record,
    Severity,
    log_pattern,
    probe,
)

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster

AILMENT = Ailment("DDP173", Severity.ERROR)


@probe
def of_each_host(cluster: Cluster) -> Iterator[Finding]:
    """Look who could not."""
    if not any(host.save for host in cluster.hosts):
        raise NotRun("several hosts try the folder that --save-folder names")
    failed = [host for host in cluster.hosts if host.save_problem]
    if failed:
        first = failed[0]
        more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
        yield Finding(
            f"{first.place}{more} cannot write to {first.save}: {first.save_problem}",
            tuple(
                Evidence(each.save_problem, "a file is written", f"{each.place}, {each.save}") for each in failed[:8]
            ),
            Fix(
                "mount it, make room there, or give it to the user who trains",
                command=f"ls -ld {first.save}; df -h {first.save}; id -un   # on {first.name}",
            ),
            Place(file=first.save, host=first.name),
        )


REFUSED = (
    r"(?:PermissionError: \[Errno 13\] Permission denied|OSError: \[Errno 30\] Read-only file system)"
    r": '(?P<path>[^'\n]{1,500})'"
)
CACHES = re.compile(r"triton|torchinductor|torch_extensions|\.cache\b")  # of libraries, not what the training saves
WRITES = re.compile(
    r"makedirs|mkdir|torch\.save|save_pretrained|save_state|save_checkpoint|\bopen\([^\n]*['\"][wax]b?\+?['\"]|SummaryWriter"
    r"|copy(?:file|tree)|\.write_(?:text|bytes)"
)


@log_pattern(REFUSED)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Read the path that a rank was to make or write."""
    if not WRITES.search(record.text) or CACHES.search(match["path"]):
        return
    ranks = sorted(log.ranks(REFUSED))
    read_only = "Errno 30" in match[0]
    folder = match["path"].rpartition("/")[0] or "."
    yield Finding(
        f"{'rank ' + ', '.join(map(str, ranks[:8])) if ranks else 'a rank'} is not allowed to write {match['path']}"
        + (": the file system is read-only" if read_only else ""),
        (record.proof(match, "a file is written"),),
        Fix(
            "save to a folder of the user who trains" if not read_only else "save to a file system that can be written",
            command=f"ls -ld {folder}; id -un; df -h {folder}",
        ),
        record.place,
    )
