"""A rank and the processes that it has started, the workers of its loader among them: how long each had no core."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ddpdoctor.host.process.threads import thread_folders
from ddpdoctor.watch.monitor.seen.usage import NANOSECONDS


class Turns(NamedTuple):
    """The seconds that the main thread of a process waited for a core, and ran, since it began."""

    waited: float
    ran: float

    def since(self, before: Turns | None, seconds: float) -> Turns:
        """Return what was added to them; of a process not seen before no more than the seconds since the last look."""
        if before is None:
            return Turns(min(self.waited, seconds), min(self.ran, seconds))
        return Turns(self.waited - before.waited, self.ran - before.ran)


NONE = Turns(0.0, 0.0)


def starters(pid: int) -> tuple[int, ...]:
    """Return the threads of a process that have started others: a loader may be iterated in one of its own."""
    numbers = [int(each.name) for each in thread_folders(pid)]
    return tuple(each for each in numbers if each != pid and _started(pid, each))


def counted(pid: int, threads: Iterable[int] = ()) -> dict[int, Turns]:
    """Return what a process, and all that its main thread and ``threads`` have started, waited for a core, and ran.

    What those have started counts as well: a fork server's workers.
    """
    found: dict[int, Turns] = {}
    new = [pid]
    while new:
        each = new.pop()
        with suppress(OSError, ValueError, IndexError):
            ran, waited, _ = map(int, Path(f"/proc/{each}/schedstat").read_text().split())
            found[each] = Turns(waited / NANOSECONDS, ran / NANOSECONDS)
            for thread in (each, *threads) if each == pid else (each,):
                new += [child for child in _started(each, thread) if child not in found]
    return found


def _started(pid: int, thread: int) -> list[int]:
    with suppress(OSError, ValueError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{thread}/children").read_text().split()]
    return []
