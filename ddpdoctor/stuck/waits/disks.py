"""A rank that has been in one wait for a disk, or a file server, for as long as it was looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil

from ddpdoctor.host.process.waits.awaited import awaited
from ddpdoctor.host.process.waits.wait import Awaited

if TYPE_CHECKING:
    from ddpdoctor.stuck.looks.look import Seen

LEAST = 5.0  # seconds of one disk wait that are told: a disk answers within some hundredths
A_DISK = Awaited("a disk, or a file server, to answer", "", "sudo dmesg | tail   # and, of network drives: nfsstat -m")


def of_disk(store: int, seen: Seen) -> Awaited | None:
    """Return what a rank waits for that was in one wait for a disk all the time: it counts as at work, for a while.

    ``store`` is the port of the ranks' store.
    """
    if seen.state != psutil.STATUS_DISK_SLEEP or seen.moves or (seen.rested or 0.0) < max(seen.length, LEAST):
        return None
    return awaited(seen.pid, seen.stack.frames, store) or A_DISK
