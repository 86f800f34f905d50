"""The steps of a rank as the monitor follows them: the spans that they were written in, and waiting for a core."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddpdoctor.watch.events import CallsTimed, Equipped, LinesSampled, RankSteps, StepsTimed
from ddpdoctor.watch.events.steps.blocks import Spans
from ddpdoctor.watch.monitor.seen.cores import Ran, allowed, running, throttled
from ddpdoctor.watch.monitor.seen.family import NONE, Turns, counted, starters
from ddpdoctor.watch.monitor.seen.usage import NANOSECONDS

if TYPE_CHECKING:
    from ddpdoctor.watch.event_log import Reader
    from ddpdoctor.watch.training import Training

OFTEN = 0.15  # seconds between two looks at what a process waits for
FEWEST = 5  # spans of each rank, before anything is said of its steps
SCAN = 2.0  # seconds between two looks at all threads; and at all processes, where a rank is bound to cores
BESIDE = 0.1  # of the time: what another process computes on a rank's cores is worth a word
NAMED = 4  # of them
ENOUGH = 60.0  # seconds of steps, after which it is told where they go
PARTLY = 0.25  # of the time: no less counts as seen of processes that end all the time


@dataclass(slots=True)
class Pacing:
    """One rank: ``own`` are the seconds that its main thread waited for a core, ``waited`` those of one of its workers.

    They are counted from ``since`` until ``looked`` (time.monotonic), while the rank made steps; ``last`` has what the
    kernel had counted by then, by process. ``worked`` are the seconds that the worker computed which computed most.
    ``unseen`` is the time in which workers ended: what they waited for since the look before, nobody has counted.
    """

    spans: Spans = field(default_factory=Spans)
    own: float = 0.0
    waited: float = 0.0
    worked: float = 0.0
    unseen: float = 0.0
    since: float = 0.0
    looked: float = 0.0
    last: dict[int, Turns] = field(default_factory=dict)
    threads: tuple[int, ...] = ()
    searched: float = 0.0
    pid: int = 0
    held: float = 0.0
    scans: int = 0
    throttled: float = 0.0
    allowed: frozenset[int] = frozenset()
    others: dict[int, Ran] = field(default_factory=dict)
    beside: tuple[tuple[str, int, float], ...] = ()

    def look(self, reader: Reader) -> None:
        """Take up what the rank has written since the last look."""
        blocks = reader.blocks()
        if not blocks:
            return
        self.spans.add(blocks)
        now = time.monotonic()
        if now - self.looked < OFTEN:
            return
        self._look_at_turns(reader.pid, now)
        self.pid = reader.pid
        self._look_at_cores(now)
        self.since, self.looked = self.since or now, now

    def _look_at_turns(self, pid: int, now: float) -> None:
        """Add up what the rank and the worker of it that waited longest for a core waited, since the last look."""
        if not self.since or now - self.searched >= SCAN:
            self.threads, self.searched = starters(pid), now
        before, self.last = self.last, counted(pid, self.threads)
        if not self.since:
            return
        seconds = now - self.looked
        grown = {each: turns.since(before.get(each), seconds) for each, turns in self.last.items()}
        self.own += grown.pop(pid, NONE).waited
        self.waited += max((each.waited for each in grown.values()), default=0.0)
        self.worked += max((each.ran for each in grown.values()), default=0.0)
        self.unseen += seconds if before.keys() - self.last.keys() else 0.0

    def _look_at_cores(self, now: float) -> None:
        """Look what keeps the process from its cores: at first, and for the last time while it makes steps."""
        held = throttled(self.pid)
        if not self.since:
            self.held, self.allowed = held, allowed(self.pid)
            self.others = running() if self.is_bound else {}
        self.throttled += held - self.held
        self.held = held
        seconds = now - self.since
        if self.is_bound and self.since and seconds >= SCAN * (1 + self.scans):
            self.scans = int(seconds / SCAN)
            self.beside = _beside(self.pid, self.allowed, self.others, running(), seconds)

    @property
    def is_bound(self) -> bool:
        """Whether the process may use some cores of the host only."""
        return 0 < len(self.allowed) < (os.cpu_count() or 1)

    @property
    def starved(self) -> float:
        """The share of the time in which the rank waited for a core; all of it where this process never got one.

        Who has no two looks at a second of steps and more has been kept from looking.
        """
        if self.looked <= self.since and sum(each.total for each in self.spans.spans.values()) > NANOSECONDS:
            return 1.0
        if self.looked <= self.since:
            return 0.0
        seconds = self.looked - self.since
        return min(1.0, self.own / seconds + self._share(self.waited))

    @property
    def works(self) -> float:
        """The share of the time in which the worker computed that computed most."""
        return min(1.0, self._share(self.worked))

    def _share(self, workers: float) -> float:
        """Return what share of the time these seconds of workers are, as far as they were looked at."""
        seconds = max(self.looked - self.since, 1e-3)
        return workers / max(seconds - self.unseen, PARTLY * seconds)


def _beside(
    pid: int, cores: frozenset[int], before: dict[int, Ran], after: dict[int, Ran], seconds: float
) -> tuple[tuple[str, int, float], ...]:
    """Return who else has computed on these cores, and nowhere else: name, number, share of the time."""
    found = [
        (each.name, number, (each.seconds - then.seconds) / seconds)
        for number, each in after.items()
        if number != pid and (then := before.get(number)) is not None and each.core in cores
        if allowed(number) <= cores
    ]
    return tuple(sorted((each for each in found if each[2] >= BESIDE), key=lambda each: -each[2])[:NAMED])


def steps_of(training: Training, ranks: dict[int, Pacing]) -> tuple[RankSteps, ...]:
    """Return the steps of all ranks of a training that have made enough, by rank."""
    found = []
    told = training.by_rank(Equipped)
    for rank, pacing in sorted(ranks.items()):
        spans = pacing.spans.complete()
        if len(spans) >= FEWEST and rank in told:
            sampled = training.by_rank(LinesSampled).get(rank)
            closely = sampled.waited / max(1, sampled.nanoseconds) if sampled else 0.0
            each = told[rank]
            held = pacing.throttled / max(pacing.looked - pacing.since, 1e-3)
            found.append(
                RankSteps(
                    rank, pacing.spans.per, spans, max(pacing.starved, closely), each.device, each.threads, each.cpus,
                    min(1.0, held), pacing.beside, tuple(sorted(pacing.allowed)) if pacing.is_bound else (),
                    os.cpu_count() or 0, pacing.works,
                )
            )  # fmt: skip
    return tuple(found)


def timed(training: Training, ranks: dict[int, Pacing], *, at_end: bool, profiles: bool = False) -> StepsTimed | None:
    """Return where the steps of a training went, once: after a while, or where it ends; None where that was told.

    Where steps are measured closely (``profiles``), that is waited for.
    """
    if training.of(StepsTimed) or not ranks:
        return None
    steps = steps_of(training, ranks)
    if len(steps) < len(ranks) or not steps:
        return None
    measures = profiles and len(training.by_rank(CallsTimed)) < len(ranks)
    if not at_end and (measures or min(each.seconds for each in steps) < ENOUGH):
        return None
    return StepsTimed(pid=0, time=time.time(), ranks=steps)
