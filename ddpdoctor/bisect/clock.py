"""When all ranks of a run had made their first step, and how many steps they made after it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.watch.events import Joined, Joining

if TYPE_CHECKING:
    from ddpdoctor.watch.monitor.monitor import Monitor

STEPS = 200  # that are measured, at most
MEASURE = 5.0  # seconds of steps that are measured, at most


@dataclass(slots=True)
class Clock:
    """When all ranks had made their first step, and how many they have made since."""

    first: float = 0.0
    steps: int = 0
    last: float = 0.0
    moved: float = 0.0
    counts: tuple[int, ...] = ()

    def look(self, monitor: Monitor) -> bool:
        """Look at the counters; return whether enough was measured."""
        ranks, now = monitor.ranks.counts.values(), time.time()
        counts = tuple(int(each[name]) for each in ranks for name in ("steps", "forwards", "communications", "batches"))
        if counts != self.counts:
            self.counts, self.moved = counts, now
        if not is_complete(monitor) or not (least := min((int(each["steps"]) for each in ranks), default=0)):
            return False
        if not self.first:
            self.first, self.last, self.steps = now, now, 0
            self._before = least
        elif least - self._before > self.steps:
            self.steps, self.last = least - self._before, now
        return self.steps >= STEPS or (now - self.first > MEASURE and self.steps >= 1)

    _before: int = 0


def is_complete(monitor: Monitor) -> bool:
    """Whether all ranks that this host is to have are there and have joined."""
    joining, joined = monitor.training.of(Joining), monitor.training.by_rank(Joined)
    wanted = max((each.local_size or each.world_size for each in joining), default=0)
    return len(joined) >= max(1, wanted)
