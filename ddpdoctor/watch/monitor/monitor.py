"""Reads what all watched processes write, and speaks as soon as a check finds something; runs without torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from ddpdoctor.watch.dispatcher import Dispatcher, Found
from ddpdoctor.watch.event_log import Reader
from ddpdoctor.watch.events import Doing, Ended, Event, Failed, Joined, Left, Stalled, Started
from ddpdoctor.watch.failure_explainer import Explainer
from ddpdoctor.watch.monitor.positions import Rank, follow_those_that_rest, stalled
from ddpdoctor.watch.settings import ENDED

if TYPE_CHECKING:
    from ddpdoctor.facets import Check
    from ddpdoctor.findings import Result
    from ddpdoctor.watch.settings import Settings
    from ddpdoctor.watch.training import Training

SETTLED = 1.0  # seconds after a failure, in which other ranks fail because of it
AGAIN = 10.0  # seconds between two looks at a training that still stands


class Monitor:
    """Follows one run; ``say`` is called with each finding as soon as it is made."""

    def __init__(self, settings: Settings, checks: Iterable[Check], say: Callable[[Found], None]) -> None:
        """Begin with an empty session."""
        self.found: list[Found] = []
        self.explained: list[Found] = []
        """Those of them that explain why a rank failed."""
        self._settings, self._say = settings, say
        self._dispatcher = Dispatcher(checks := tuple(checks))
        self._explainer = Explainer(checks)
        self._failed: list[Failed] = []
        self._new: list[Failed] = []
        self._failing = 0.0
        self._stopped = False
        self._known = False  # what the ranks have failed of
        self._told: set[tuple[str, str | None, int | None]] = set()
        self._ranks: dict[int, Rank] = {}
        self._looked = 0.0
        self._stands: tuple[tuple[int, Doing, str], ...] = ()

    def poll(self) -> None:
        """Read what is new, and look for a hang."""
        for path in Path(self._settings.session).glob("*.events"):
            if int(path.stem) not in self._ranks:
                self._ranks[int(path.stem)] = _rank(path)
        for each in self._ranks.values():
            for event in each.reader.new():
                if event.rank is not None:
                    each.rank = event.rank
                self._see(event)
            each.moved()
        follow_those_that_rest(each for each in self._ranks.values() if each.rank >= 0)
        if any(each.is_explaining for each in self._ranks.values()):
            return  # it will say why the others wait
        if not self._new:
            self._look()
        elif time.monotonic() - self._failing > SETTLED:
            self._explain()

    def signal_ranks(self, number: int) -> None:
        """Send a signal to each rank that is there."""
        for each in self._ranks.values():
            if each.alive and each.process is not None:
                with suppress(psutil.NoSuchProcess):
                    each.process.send_signal(number)

    def pids(self) -> list[int]:
        """List the processes of all ranks that were seen."""
        return list(self._ranks)

    @property
    def crashes(self) -> tuple[Result, ...]:
        """The results of checks that crashed."""
        return tuple(self._dispatcher.crashes)

    @property
    def asked(self) -> frozenset[str]:
        """The codes of checks that had something to look at."""
        return frozenset(self._dispatcher.asked)

    @property
    def counts(self) -> dict[str, dict[str, float]]:
        """By rank how many batches, forwards and steps it made, and the seconds that comparing them cost it."""
        return {str(each.rank): each.reader.counts() for each in self._ranks.values() if each.rank >= 0}

    @property
    def training(self) -> Training:
        """All that the ranks have told."""
        return self._dispatcher.training

    @property
    def joined(self) -> bool:
        """Whether a rank has joined a process group."""
        return bool(self.training.of(Joined))

    def first_failure(self) -> str:
        """Return the first exception that left a rank, in a line; empty when there is none."""
        failed = sorted(self._dispatcher.training.of(Failed), key=lambda event: event.time)
        if not failed:
            return ""
        first = failed[0]
        return f"rank {first.rank}: {first.said}" + (f" ({first.site})" if first.site else "")

    def alive(self) -> bool:
        """Whether a rank is there."""
        return any(each.alive for each in self._ranks.values())

    def end(self, status: int) -> None:
        """Take the end of the command into account: what no rank will tell any more."""
        self.poll()
        self._explain()
        self._see(Ended(pid=0, time=time.time(), status=status))

    def stop_ranks(self, text: str) -> None:
        """Ask all ranks to end at their next batch or step; what has failed before is still told."""
        self._explain()
        self._stopped = True
        (Path(self._settings.session) / ENDED).write_text(text, encoding="utf-8")
        for each in self._ranks.values():
            with suppress(FileNotFoundError):
                each.reader.stop()

    @property
    def hung(self) -> bool:
        """Whether the training stands: all that is left waits, and nobody works."""
        return bool(self._stands) and all(doing is not Doing.WORKING for _, doing, _ in self._stands)

    def _see(self, event: Event) -> None:
        if isinstance(event, Failed):  # what it means depends on those that follow
            self._dispatcher.training.add(event)
            if not event.error.startswith("ddpdoctor."):
                self._failing = self._failing if self._new else time.monotonic()
                self._new.append(event)
            return
        if isinstance(event, Started):  # after failures: the launcher starts anew
            self._failed.clear()
            self._known = False
        self._tell(self._dispatcher.see(event))

    def _explain(self) -> None:
        """Return what the ranks have failed of: the first of them, and what followed from that; each fault once.

        Of a training that the watch itself has ended nothing more is said.
        """
        if not self._new or self._stopped:
            return
        self._failed += self._new
        self._new.clear()
        gone = tuple(sorted(each.rank for each in self._ranks.values() if self._is_gone(each)))
        left = self._dispatcher.training.of(Left, ended=True)
        failed = {event.pid for event in self._failed}
        ended = tuple(sorted({event.rank for event in left if event.rank is not None and event.pid not in failed}))
        for found in self._explainer.explain(self._failed, self._dispatcher, gone=gone, ended=ended):
            self._known = True
            key = (found.check.code, found.finding.place.file, found.finding.place.line)
            if key not in self._told:
                self._told.add(key)
                self.explained.append(found)
                self._tell([found])

    def _is_gone(self, each: Rank) -> bool:
        """Whether a rank is no more, and told neither of an exception nor of its end."""
        told = (self._dispatcher.training.of(kind, pid=each.reader.pid) for kind in (Failed, Left))
        return each.rank >= 0 and not each.alive and not any(told)

    def _tell(self, found: Iterable[Found]) -> None:
        for each in found:
            self.found.append(each)
            self._say(each)

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked < (AGAIN if self._stands else 1.0):
            return
        self._looked = now
        joined = [each for each in self._ranks.values() if each.rank >= 0]
        event = stalled(joined, self._dispatcher.training, self._settings.hang_after)
        stands = _signature(event)
        if event is not None and stands != self._stands and not (self._known and event.doing(Doing.FAILED)):
            self._see(event)
        self._stands = stands


def _rank(events: Path) -> Rank:
    reader = Reader(events)
    try:
        process: psutil.Process | None = psutil.Process(reader.pid)
    except psutil.NoSuchProcess:
        process = None
    return Rank(reader, -1, process, since=time.monotonic())


def _signature(event: Stalled | None) -> tuple[tuple[int, Doing, str], ...]:
    return tuple((each.rank, each.doing, each.operation) for each in event.ranks) if event else ()
