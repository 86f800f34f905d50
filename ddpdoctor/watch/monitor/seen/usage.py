"""What a process has used so far, as the kernel counts it: no process is asked, and none is disturbed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import psutil

from ddpdoctor.host.process.parents import parent_of
from ddpdoctor.host.process.threads import thread_folders
from ddpdoctor.watch.settings import MONITOR_COMMAND

BUSY = 0.2  # of a core, had or waited for: a thread that waits for others uses none
MAIN = 0.02  # of a core that a main thread had: one that waits does not come to run at all
TURN = 0.001  # seconds that a thread at work has its core; one that only looks whether there is work has it for less
AT_WORK = frozenset({psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP})
NANOSECONDS = 1e9
LINUX = Path("/proc/self/stat").exists()


class Thread(NamedTuple):
    """What a thread has used: seconds that it ran, and that it waited for a core; how often it came to run."""

    ran: float
    waited: float
    turns: int


NEW = Thread(0.0, 0.0, 0)


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process, and what it has started, have used; ``time`` is time.monotonic() when that was read.

    ``threads`` are those of the process and of its ``helpers``, the processes that it has started; ``moved`` are bytes
    that they have read and written; ``main`` and ``state`` are those of the thread that trains, the main one unless
    ``thread`` is another.
    """

    pid: int
    time: float
    state: str = ""
    threads: dict[int, Thread] = field(default_factory=dict)
    helpers: frozenset[int] = frozenset()
    moved: int = 0
    thread: int = 0

    @property
    def trains(self) -> int:
        """The kernel's number of the thread that trains."""
        return self.thread or self.pid

    @property
    def main(self) -> Thread:
        """What the thread that trains has used."""
        return self.threads.get(self.trains, NEW)

    def works_since(self, before: Usage) -> bool:
        """Whether the process was at work: it computed, wanted to, waited for a disk, or had its helpers compute.

        A thread that waits for a core is at work, however rarely a loaded machine lets it run.
        """
        seconds = max(self.time - before.time, 1e-3)
        if self.state in AT_WORK or self.main.ran - before.main.ran > MAIN * seconds:
            return True
        return any(_is_busy(before.threads.get(tid, NEW), now, seconds) for tid, now in self.threads.items())


def _is_busy(before: Thread, now: Thread, seconds: float) -> bool:
    ran, turns = now.ran - before.ran, now.turns - before.turns
    return ran + now.waited - before.waited > BUSY * seconds and ran > TURN * turns


def usages(pids: Iterable[int], *, helpers: bool = True, threads: Mapping[int, int] | None = None) -> dict[int, Usage]:
    """Return what processes have used, with all that they have started; those that are gone are left out.

    Without ``helpers`` not all processes of the host are looked at. ``threads`` are those that train, by process, where
    it is not the main one (0).
    """
    children: dict[int, list[int]] = {}
    wanted = set(pids)
    for pid, parent in _without_own(_parents(), wanted).items() if wanted and helpers else ():
        children.setdefault(parent, []).append(pid)
    return {pid: found for pid in wanted if (found := _usage(pid, (threads or {}).get(pid, 0), children, wanted))}


def _usage(pid: int, thread: int, children: dict[int, list[int]], others: set[int]) -> Usage | None:
    helpers = frozenset(_below(pid, children)) - others
    try:
        process = psutil.Process(pid)
        threads = {tid: each for one in (pid, *helpers) for tid, each in _threads(one).items()}
        moved = sum(map(_moved, (pid, *helpers)))
        state = _state(pid, thread) if thread else process.status()
        return Usage(pid, time.monotonic(), state, threads, helpers, moved, thread)
    except psutil.Error:
        return None


def _state(pid: int, thread: int) -> str:
    """Return what a thread does, in psutil's words; empty once it is gone."""
    with suppress(OSError, IndexError):
        letter = Path(f"/proc/{pid}/task/{thread}/stat").read_text().rpartition(")")[2].split()[0]
        return {"R": psutil.STATUS_RUNNING, "D": psutil.STATUS_DISK_SLEEP}.get(letter, psutil.STATUS_SLEEPING)
    return ""


def _without_own(parents: dict[int, int], wanted: set[int]) -> dict[int, int]:
    """Leave out what has led from one of these processes to this one, which looks: that is no work of a rank.

    Where a rank is the first process of a container, the daemon by which somebody came in is below it.
    """
    pid = os.getpid()
    while (parent := parents.get(pid)) is not None and parent not in wanted:
        pid = parent
    return {each: above for each, above in parents.items() if each != pid} if parent is not None else parents


def _parents() -> dict[int, int]:
    found = {}
    for pid in psutil.pids():
        with suppress(psutil.Error, OSError, ValueError, IndexError):
            found[pid] = parent_of(pid) if LINUX else psutil.Process(pid).ppid()
    return found


def _below(pid: int, children: dict[int, list[int]]) -> set[int]:
    found: set[int] = set()
    new = [pid]
    while new:
        below = [child for each in new for child in children.get(each, ()) if child not in found]
        new = [child for child in below if not _is_monitor(child)]
        found.update(new)
    return found


def _is_monitor(pid: int) -> bool:
    """Whether a process watches the ranks: ``install()`` has one of them start it, whose own work it is not."""
    with suppress(psutil.Error, OSError):
        return tuple(psutil.Process(pid).cmdline()[-len(MONITOR_COMMAND) :]) == MONITOR_COMMAND
    return False


def _threads(pid: int) -> dict[int, Thread]:
    found = {}
    for path in thread_folders(pid):
        with suppress(OSError, ValueError):
            ran, waited, turns = map(int, (path / "schedstat").read_text().split())
            found[int(path.name)] = Thread(ran / NANOSECONDS, waited / NANOSECONDS, turns)
    return found or _threads_without_schedstat(pid)


def _threads_without_schedstat(pid: int) -> dict[int, Thread]:
    """Do without what some kernels do not count."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        with suppress(psutil.AccessDenied):
            turns = {pid: sum(process.num_ctx_switches())}
            return {
                each.id: Thread(each.user_time + each.system_time, 0.0, turns.get(each.id, 0))
                for each in process.threads()
            }
        times = process.cpu_times()
        return {pid: Thread(times.user + times.system, 0.0, 0)}
    return {}


def _moved(pid: int) -> int:
    with suppress(psutil.Error, AttributeError, NotImplementedError):
        counted = psutil.Process(pid).io_counters()
        return int(getattr(counted, "read_chars", 0) + getattr(counted, "write_chars", 0))
    return 0
