"""Processes that were started beside the ranks and have told nothing: where a rank is looked for that never joined."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress

import psutil

from ddpdoctor.watch.events import Sibling

BUSY = 0.2  # of a core
LOOK = 0.5  # seconds between two looks at a process
HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver", "-m ddpdoctor")


def siblings(pids: Iterable[int]) -> tuple[Sibling, ...]:
    """List what the parents of these processes have also started with the same interpreter, and that lives."""
    known = set(pids)
    found: dict[int, psutil.Process] = {}
    for pid in known:
        with suppress(psutil.Error):
            rank = psutil.Process(pid)
            parent, interpreter = rank.parent(), rank.exe()
            for each in parent.children() if parent else ():
                if each.pid not in known and _is_like(each, interpreter):
                    found[each.pid] = each
    before = {pid: _used(each) for pid, each in found.items()}
    time.sleep(LOOK if found else 0)
    return tuple(Sibling(pid, _used(each) - before[pid] > BUSY * LOOK) for pid, each in sorted(found.items()))


def _is_like(process: psutil.Process, interpreter: str) -> bool:
    with suppress(psutil.Error):
        return (
            process.exe() == interpreter
            and process.status() != psutil.STATUS_ZOMBIE
            and not any(helper in " ".join(process.cmdline()) for helper in HELPERS)
        )
    return False


def _used(process: psutil.Process) -> float:
    with suppress(psutil.Error):
        times = process.cpu_times()
        return float(times.user + times.system)
    return 0.0
