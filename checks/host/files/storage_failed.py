"""The disk, or the file system of the network, failed to read or write.

## What happens

"OSError: [Errno 5] Input/output error" is the kernel's word for storage that did not do what it was asked: a disk with
bad blocks, a server of Lustre, GPFS or NFS that went away or took too long, an object store behind FUSE that refused.
It meets whoever reads or writes then: one rank's sample, one rank's part of a checkpoint. "[Errno 121] Remote I/O
error" is the same from the other end of a network. The training itself is not wrong.

A print or a progress bar that ends so has no terminal any more: the session was closed, and the training went on.

## How to be sure

The kernel's log of that host at that time, and `df` of the path. Another host that reads the same file tells the disk
from the server.

## How to mend it

Mend the storage; try the write again after a pause, to another name, and rename what is whole. A checkpoint that was
being written is not to be resumed from.

## Versions and sources

Whatever the torch. Source: errno(3); THUDM/slime#326, NVIDIA/NeMo-Aligner#502, rwth-i6/returnn#1829.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP175", Severity.ERROR)


TO_TERMINAL = re.compile(r"\bprint\(|\bsys\.std(?:out|err)\b|\bfp_?\.?write\(|\bself\.fp\b|\bstream\.(?:write|flush)\(")


@log_pattern(
    r"\[Errno (?:5|121)\] (?P<why>Input/output error|Remote I/O error)(?:: '(?P<path>[^'\n]{1,300})')?", plain=True
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Say what was asked of the storage, as far as the frames tell."""
    if not record.error:
        return  # a line of a program that tries again
    if not match["path"] and TO_TERMINAL.search(record.text):
        yield _of_a_terminal(record, match)
        return
    saves = re.search(r"\b(?:save|write|dump)\w*\b|filesystem_async", record.text) is not None
    what = f" at {match['path']}" if match["path"] else " while a checkpoint, or another file, was written" * saves
    yield Finding(
        f"the storage failed{what}: {match['why']}",
        (record.proof(match, "storage that answers"),),
        Fix(
            "mend the storage first; a file that was being written is not whole",
            command="sudo dmesg -T | tail -n 40 | grep -iE 'i/o error|lustre|nfs|gpfs|xfs|ext4|nvme'; df -h; df -i"
            "   # on that host",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "a disk of this host is failing",
                "the server of the network file system, or the way to it, failed or took too long",
                "the object store behind a mount (FUSE) refused the operation",
            ),
            f"df -hT {match['path'] or 'PATH'}; sudo dmesg -T | tail -n 40   # Type: a local disk, or a server",
        ),
    )


def _of_a_terminal(record: Record, match: re.Match[str]) -> Finding:
    return Finding(
        f"what the training prints to is gone ({match['why']}): its terminal was closed",
        (record.proof(match, "output that goes to a file"),),
        Fix(
            "let it write to a file, and start it so that it outlives the session",
            command="nohup torchrun --nproc_per_node=4 train.py > train.log 2>&1 &   # or within tmux",
        ),
        record.place,
    )
