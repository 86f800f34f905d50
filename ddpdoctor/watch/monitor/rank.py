"""A process that the monitor follows."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psutil

from ddpdoctor.host.process.waits.awaited import asks_the_store
from ddpdoctor.host.stack import read_stack
from ddpdoctor.watch import event_log
from ddpdoctor.watch.event_log import STACK
from ddpdoctor.watch.monitor.pacing import Pacing
from ddpdoctor.watch.monitor.seen.activity import WINDOW, Activity, follow
from ddpdoctor.watch.monitor.seen.operation import operation_of
from ddpdoctor.watch.monitor.seen.questions import ask

if TYPE_CHECKING:
    from ddpdoctor.watch.event_log import Reader


@dataclass(slots=True)
class Rank:
    """A process that the monitor follows; ``since`` is when its counters last moved (time.monotonic)."""

    reader: Reader
    rank: int
    process: psutil.Process | None
    counters: tuple[int, ...] = ()
    since: float = 0.0
    activity: Activity = field(default_factory=Activity)
    pacing: Pacing = field(default_factory=Pacing)

    def moved(self) -> bool:
        """Look at the counters; say whether they moved."""
        told = self.reader.counters()
        counters, thread = told[: event_log.SAMPLING_MICROSECONDS], told[event_log.THREAD]
        if thread != self.activity.thread:
            self.activity = Activity(thread)
        if counters != self.counters:
            self.counters, self.since = counters, time.monotonic()
            self.activity = Activity(thread)
            return True
        return False

    def send(self, number: int) -> None:
        """Send the process a signal, if it is there."""
        if self.alive and self.process is not None:
            with suppress(psutil.NoSuchProcess):
                self.process.send_signal(number)

    @property
    def is_explaining(self) -> bool:
        """Whether the process is at work on the explanation of an exception."""
        return self.alive and bool(self.reader.counters()[event_log.EXPLAINING])

    @property
    def alive(self) -> bool:
        """Whether the process is there and no zombie."""
        try:
            return self.process is not None and self.process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    @property
    def stopped(self) -> bool:
        """Whether the process is stopped by a signal, at this moment."""
        return self._is(psutil.STATUS_STOPPED)

    @property
    def traced(self) -> bool:
        """Whether the process is stopped by a debugger, at this moment."""
        return self._is(psutil.STATUS_TRACING_STOP)

    def _is(self, status: str) -> bool:
        try:
            return self.process is not None and self.process.status() == status
        except psutil.NoSuchProcess:
            return False


def follow_those_that_rest(ranks: Iterable[Rank]) -> None:
    """Look from outside at the ranks whose counters have not moved for a while; called again and again."""
    now = time.monotonic()
    resting = [each for each in ranks if each.alive and now - each.since > WINDOW]
    due = [each for each in resting if each.activity.is_due(now)]
    follow({each.reader.pid: each.activity for each in due})


def deaf(ranks: Iterable[Rank], store: int) -> list[Rank]:
    """Return the ranks that are there, if all of them rest in native code that no signal of Python's ends; or none.

    They are in a communication, or wait for a key: of the ranks' store, whose port is given, or of one of the script's.
    """
    there = [each for each in ranks if each.rank >= 0 and each.alive]
    follow({each.reader.pid: each.activity for each in there})
    if any(each.activity.still < WINDOW for each in there):
        return []
    told = ask([each.reader.base for each in there], STACK)
    can_hear = [
        pid for pid, text in told.items() if not operation_of(read_stack(text)) and not asks_the_store(pid, store)
    ]
    return [] if can_hear else there
