"""A process that a signal has stopped, and that a rank stands for: a loader's worker, a manager of shared objects."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import psutil

from ddpdoctor.host.process.open_files import command_of
from ddpdoctor.host.process.waits.wait import Awaited
from ddpdoctor.stuck.waits.workers import started_by

if TYPE_CHECKING:
    from ddpdoctor.stuck.looks.spy import Stack

SHARED = "/multiprocessing/"


def of_stopped(pid: int, stack: Stack) -> Awaited | None:
    """Return that a rank waits for a process that is stopped: one that it has started, or one beside it.

    What stands beside it counts where the rank talks to another process by multiprocessing.
    """
    beside = any(SHARED in frame.file for frame in stack.frames)
    with suppress(psutil.Error):
        parent = psutil.Process(pid).parent()
        siblings = [each.pid for each in parent.children()] if parent is not None and beside else []
        beside_it = [each for each in (*started_by(pid)[1:], *siblings) if each != pid]
        found = [each for each in beside_it if psutil.Process(each).status() == psutil.STATUS_STOPPED]
        if found:
            who = f"process {found[0]} ({command_of(found[0])})" + (f", and {len(found) - 1} more" if found[1:] else "")
            return Awaited(
                f"{who}, which a signal has stopped (SIGSTOP)",
                "let it go on, and find out who stops it",
                f"kill -CONT {' '.join(map(str, found))}",
                found[0],
            )
    return None
