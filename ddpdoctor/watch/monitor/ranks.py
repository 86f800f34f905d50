"""The processes of one session: those that write events, found as they begin to."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from ddpdoctor.watch.event_log import Reader
from ddpdoctor.watch.monitor.rank import Rank, follow_those_that_rest
from ddpdoctor.watch.settings import ENDED, HANGS

if TYPE_CHECKING:
    from ddpdoctor.watch.events import Event


class Ranks:
    """The processes whose events lie in a session's folder, in the order in which they were seen."""

    def __init__(self, session: str) -> None:
        """Begin with none."""
        self._session = Path(session)
        self._by_pid: dict[int, Rank] = {}

    def __iter__(self) -> Iterator[Rank]:
        """Yield each."""
        return iter(self._by_pid.values())

    def __len__(self) -> int:
        """Return how many were seen."""
        return len(self._by_pid)

    def look(self) -> list[Event]:
        """Return what all processes, new ones too, have told since the last call, in the order in which it happened."""
        for path in self._session.glob("*.events"):
            if int(path.stem) not in self._by_pid:
                self._by_pid[int(path.stem)] = _rank(path)
        found = []
        for each in self:
            for event in each.reader.new():
                if event.rank is not None:
                    each.rank = event.rank
                found.append(event)
            each.moved()
            each.pacing.look(each.reader)
        return sorted(found, key=lambda event: event.time)

    def follow(self) -> None:
        """Look from outside at those that have not moved for a while."""
        follow_those_that_rest(each for each in self if each.rank >= 0)

    @property
    def are_explaining(self) -> bool:
        """Whether one of them is at work on the explanation of an exception."""
        return any(each.is_explaining for each in self)

    def pids(self) -> list[int]:
        """List all that were seen."""
        return list(self._by_pid)

    def alive(self) -> bool:
        """Whether one of them is there."""
        return any(each.alive for each in self)

    @property
    def counts(self) -> dict[str, dict[str, float]]:
        """By rank how many batches, forwards and steps it made, and the seconds that comparing them cost it.

        Of several processes with one rank, as one that the rank has started itself, the one that trained most counts.
        """
        known = ((str(each.rank), each.reader.counts()) for each in self if each.rank >= 0)
        return dict(sorted(known, key=lambda each: (int(each[0]), each[1]["steps"])))

    def send(self, number: int) -> None:
        """Send a signal to each that is there."""
        for each in self:
            each.send(number)

    def hang(self, *, told: bool) -> None:
        """Let launchers know whether a hang that was told lasts: the signal that ends it is nothing new."""
        said = self._session / HANGS
        with suppress(OSError):
            if told and not said.exists():
                said.touch()
            elif not told:
                said.unlink()

    def stop(self, text: str) -> None:
        """Ask them to end at their next batch or step; ``text`` is what they then raise."""
        (self._session / ENDED).write_text(text, encoding="utf-8")
        for each in self:
            with suppress(FileNotFoundError):
                each.reader.stop()


def _rank(events: Path) -> Rank:
    reader = Reader(events)
    try:
        process: psutil.Process | None = psutil.Process(reader.pid)
    except psutil.NoSuchProcess:
        process = None
    return Rank(reader, -1, process, since=time.monotonic())
