"""The steps of a rank as the monitor follows them: the spans that they were written in, and waiting for a core."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.watch.blocks import Spans
from ddpdoctor.watch.events import Equipped, RankSteps, StepsTimed

if TYPE_CHECKING:
    from ddpdoctor.watch.event_log import Reader
    from ddpdoctor.watch.training import Training

NANOSECONDS = 1e9
OFTEN = 0.15  # seconds between two looks at what a process waits for
FEWEST = 5  # spans of each rank, before anything is said of its steps
ENOUGH = 60.0  # seconds of steps, after which it is told where they go


@dataclass(slots=True)
class Pacing:
    """One rank: ``waited`` are the seconds that its main thread or, if longer, one of its workers waited for a core.

    They are counted from ``since`` until ``looked`` (time.monotonic), while the rank made steps; ``last`` has what the
    kernel had counted by then, by process.
    """

    spans: Spans = field(default_factory=Spans)
    waited: float = 0.0
    since: float = 0.0
    looked: float = 0.0
    last: dict[int, float] = field(default_factory=dict)

    def look(self, reader: Reader) -> None:
        """Take up what the rank has written since the last look."""
        blocks = reader.blocks()
        if not blocks:
            return
        self.spans.add(blocks)
        now = time.monotonic()
        if now - self.looked < OFTEN:
            return
        before, self.last = self.last, _waits(reader.pid)
        grown = {pid: each - before[pid] for pid, each in self.last.items() if pid in before}
        own = grown.pop(reader.pid, 0.0)
        self.waited += own + max(grown.values(), default=0.0)
        self.since, self.looked = self.since or now, now

    @property
    def starved(self) -> float:
        """The share of the time in which the rank waited for a core."""
        return min(1.0, self.waited / max(self.looked - self.since, 1e-3)) if self.looked > self.since else 0.0


def _waits(pid: int) -> dict[int, float]:
    """Return the seconds that the main threads of a process and of those it has started have waited for a core."""
    found = {}
    with suppress(OSError, ValueError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for each in (pid, *map(int, children)):
            with suppress(OSError, ValueError, IndexError):
                found[each] = int(Path(f"/proc/{each}/schedstat").read_text().split()[1]) / NANOSECONDS
    return found


def steps_of(training: Training, ranks: dict[int, Pacing]) -> tuple[RankSteps, ...]:
    """Return the steps of all ranks of a training that have made enough, by rank."""
    found = []
    told = training.by_rank(Equipped)
    for rank, pacing in sorted(ranks.items()):
        spans = pacing.spans.complete()
        if len(spans) >= FEWEST and rank in told:
            each = told[rank]
            found.append(RankSteps(rank, pacing.spans.per, spans, pacing.starved, each.device, each.threads, each.cpus))
    return tuple(found)


def timed(training: Training, ranks: dict[int, Pacing], *, at_end: bool) -> StepsTimed | None:
    """Return where the steps of a training went, once: after a while, or where it ends; None where that was told."""
    if training.of(StepsTimed) or not ranks:
        return None
    steps = steps_of(training, ranks)
    if len(steps) < len(ranks) or not steps:
        return None
    if not at_end and min(each.seconds for each in steps) < ENOUGH:
        return None
    return StepsTimed(pid=0, time=time.time(), ranks=steps)
