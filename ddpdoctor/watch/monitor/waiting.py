"""When the monitor looks at the launcher: before it has started a rank, and after those that it had have failed."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import psutil

from ddpdoctor.watch.monitor.launcher import launcher_waits

if TYPE_CHECKING:
    from ddpdoctor.watch.events import LauncherWaits
    from ddpdoctor.watch.monitor.ranks import Ranks

LOOK = 3.0  # seconds between two looks at a launcher


class Launcher:
    """The launcher of one run, which is told of once each time that it waits; ``after`` is how long it has to."""

    def __init__(self, after: float) -> None:
        """Begin with one that nothing is known of."""
        self._after = after
        self._told = False
        self._looked = 0.0
        self._first_rank = 0.0
        self._alone = 0.0

    def look(self, pid: int, ranks: Ranks, *, failed: bool) -> LauncherWaits | None:
        """Return that a launcher below a process waits for other nodes, where that was not told yet.

        ``failed``: of the ranks that it started last, one has failed. After ranks that have come to their end it waits
        for those of the other nodes to end.
        """
        now = time.monotonic()
        if ranks and (ranks.alive() or not failed):
            self._first_rank = self._first_rank or time.time()
            self._alone, self._told = now, False
            return None
        self._first_rank = self._first_rank or (time.time() if ranks else 0.0)
        if self._told or now - self._looked < LOOK or (ranks and now - self._alone < self._after):
            return None
        self._looked = now
        event = launcher_waits(pid, self._after)
        if event is None or (ranks and not self._has_had_ranks(event.pid)):
            return None
        self._told = True
        return replace(event, again=True, seconds=now - self._alone, line="") if ranks else event

    def _has_had_ranks(self, pid: int) -> bool:
        with suppress(psutil.Error):
            return psutil.Process(pid).create_time() < self._first_rank
        return False
