"""There is little room for checkpoints.

A disk that runs full while a checkpoint is written leaves a cut file ("failed finding central directory" when it is
loaded) and often no older one, if each is written over the last.

To be sure: `df -h .`.

Below 1 GiB in the current directory is a warning: a model of 100 million parameters with Adam's state takes 1.2 GB.
Holds for all versions of torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Evidence, Finding, Fix, Severity
from ddpdoctor.check import probe, sign
from ddpdoctor.explain.records import Record
from ddpdoctor.probe.limits import human

if TYPE_CHECKING:
    from ddpdoctor.probe.facts import Facts

CARD = Card("DDP156", Severity.WARNING, known_as=("disk-full",))
ENOUGH = 2**30  # bytes
SHARED = r"/dev/shm|</torch_|NCCL WARN|posix_fallocate|shared memory"  # noqa: S108 - matched, not used


@probe
def free(facts: Facts) -> Iterator[Finding]:
    """Look at the file system of the current directory."""
    if facts.limits.disk_free < ENOUGH:
        yield Finding(
            f"{human(facts.limits.disk_free)} are free in {facts.limits.directory}",
            (Evidence(f"{human(facts.limits.disk_free)} free", f"{human(ENOUGH)} or more", "statvfs"),),
            Fix("see what takes the room", command=f"du -xh --max-depth=1 {facts.limits.directory} | sort -h | tail"),
        )


@sign(
    r"No space left on device(?:: '([^'\n]+)')?|\[Errno 122\] Disk quota exceeded(?:: '([^'\n]+)')?"
    r"|PytorchStreamWriter failed writing file [^\n]{0,299}file write failed"
    r"|inline_container\.cc:\d+\] \. unexpected pos"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read the refusal of the file system; torch.save's "unexpected pos" is a write that came out short."""
    path = match[1] or match[2]
    if re.search(SHARED, record.text):
        return  # the memory of NCCL and of workers is other checks'
    yield Finding(
        f"the disk is full: {path} could not be written" if path else "the disk, or the quota on it, is full",
        (record.proof(match, "room for the checkpoint"),),
        Fix(
            "see what takes the room, and delete what is cut",
            command="df -h . /tmp; du -xh --max-depth=1 .",
        ),
        record.place,
        severity=Severity.ERROR,
    )
