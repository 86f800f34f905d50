"""There is little room for checkpoints.

A disk that runs full while a checkpoint is written leaves a cut file ("failed finding central directory" when it is
loaded) and often no older one, if each is written over the last.

To be sure: `df -h .`.

Below 1 GiB in the current directory is a warning: a model of 100 million parameters with Adam's state takes 1.2 GB.
Holds for all versions of torch.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor import Card, Evidence, Finding, Fix, Severity
from ddpdoctor.check import probe
from ddpdoctor.probe.facts import Facts
from ddpdoctor.probe.limits import human

CARD = Card("DDP156", Severity.WARNING)
ENOUGH = 2**30  # bytes


@probe
def free(facts: Facts) -> Iterator[Finding]:
    """Look at the file system of the current directory."""
    if facts.limits.disk_free < ENOUGH:
        yield Finding(
            f"{human(facts.limits.disk_free)} are free in {facts.limits.directory}",
            (Evidence(f"{human(facts.limits.disk_free)} free", f"{human(ENOUGH)} or more", "statvfs"),),
            Fix("see what takes the room", command=f"du -xh --max-depth=1 {facts.limits.directory} | sort -h | tail"),
        )
