"""What the monitor knows of one training besides its events: what it failed of, and whether it stands."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddpdoctor.watch.command.exits import SAY_ALL
from ddpdoctor.watch.event_log import FORWARDS, STEPS
from ddpdoctor.watch.events import (
    INTERRUPTED,
    Crashed,
    Doing,
    Failed,
    HeldAtEnd,
    KeptAtEnd,
    Left,
    Progress,
    Stalled,
)
from ddpdoctor.watch.monitor.kept_at_end import kept_at_end
from ddpdoctor.watch.monitor.stands.positions import stalled
from ddpdoctor.watch.monitor.stands.siblings import on_their_way
from ddpdoctor.watch.monitor.teardown import held_at_end

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddpdoctor.watch.command.exits import Exit
    from ddpdoctor.watch.monitor.rank import Rank
    from ddpdoctor.watch.training import Training

AGAIN = 10.0  # seconds between two looks at a training that still stands
SOON = 2.0  # seconds more between two looks for ranks that have not joined
GO_ON = (Doing.WORKING, Doing.ASKING)


@dataclass(slots=True)
class Followed:
    """One training; ``ranks`` are its processes.

    ``failed`` are its failures, ``new`` those of them that are not explained yet, since ``failing``; ``known``: it was
    told what the first of them was. ``stands`` is where its ranks were when it was last looked at; ``apart`` the same,
    where none waits for others, and it is open whether those of other hosts wait for these. ``is_silent``: one of those
    hosts did not answer then. ``held`` are processes that
    do not come to their end. ``hung_at`` is when it was last seen to hang; ``told_hang``: it was told why. ``lined_at``
    is when a line told where its ranks stand, for who reads the logs of all hosts, 0 where none did since they went on;
    ``is_over``: its ranks were seen to be gone; ``told_end``: the line of its end was written. ``exits`` are processes
    of which the launcher has said what ended them.
    """

    training: Training
    ranks: list[Rank] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    new: list[Failed] = field(default_factory=list)
    failing: float = 0.0
    known: bool = False
    looked: float = 0.0
    looked_at_end: float = 0.0
    held: set[int] = field(default_factory=set)
    stands: tuple[tuple[int, Doing, str], ...] = ()
    apart: tuple[tuple[int, Doing, str], ...] = ()
    is_silent: bool = False
    hung_at: float = 0.0
    told_hang: bool = False
    lined_at: float = 0.0
    is_over: bool = False
    told_end: bool = False
    exits: set[int] = field(default_factory=set)

    def fails(self, event: Failed) -> None:
        """Take up a failure: what it means depends on those that follow."""
        self.failing = self.failing if self.new else time.monotonic()
        self.new.append(event)

    def killed(self, exits: Sequence[Exit]) -> list[Failed]:
        """Return what the launcher says of ranks that are gone without a word: it is what the others failed of."""
        gone = self._gone()
        self.exits.update(each.pid for each in exits if each.pid in gone)
        first = min((event.time for event in (*self.failed, *self.new)), default=time.time())
        return [
            Failed(pid=each.pid, time=first, rank=gone[each.pid], error="", text=each.text)
            for each in exits
            if each.pid in gone and each.signal in SAY_ALL and not self.training.of(Crashed, pid=each.pid)
        ]

    @property
    def failing_for(self) -> float:
        """The seconds since the first of the new failures."""
        return time.monotonic() - self.failing

    @property
    def alive(self) -> bool:
        """Whether a process of it is there."""
        return any(each.alive for each in self.ranks)

    @property
    def hung(self) -> bool:
        """Whether it stands: all that is left waits, or cannot end, and nobody works."""
        if self.held and all(each.reader.pid in self.held for each in self.ranks if each.alive):
            return True
        return bool(self.stands) and all(doing not in GO_ON for _, doing, _ in self.stands)

    @property
    def hung_until_now(self) -> bool:
        """Whether it stood when it was last looked at, and no rank has moved since: what ends it now ends a hang."""
        return self.hung or (bool(self.hung_at) and all(each.since <= self.hung_at for each in self.ranks))

    @property
    def goes_on(self) -> bool:
        """Whether ranks of which a line says that they stood, or waited, have all moved since."""
        is_still = bool(self.stands or self.apart)
        return self.lined_at > 0 and not is_still and all(each.since > self.lined_at for each in self.ranks)

    def gone(self) -> tuple[int, ...]:
        """List the ranks that are no more, and that told neither of an exception nor of their end."""
        return tuple(sorted(self._gone().values()))

    def _gone(self) -> dict[int, int]:
        """Return the ranks of ``gone`` by their processes."""
        return {each.reader.pid: each.rank for each in self.ranks if each.rank >= 0 and self._is_gone(each)}

    @property
    def is_accounted_for(self) -> bool:
        """Whether ranks are gone without a word, and their launcher has said what ended them."""
        gone = self._gone().keys()
        return bool(gone) and gone <= self.exits

    def ended(self) -> tuple[int, ...]:
        """List the ranks that came to the end of their program."""
        failed = {event.pid for event in self.failed}
        left = self.training.of(Left, ended=True)
        return tuple(sorted({event.rank for event in left if event.rank is not None and event.pid not in failed}))

    def was_interrupted(self) -> bool:
        """Whether Ctrl-C has ended a rank: what the others fail of, or wait for, follows from that."""
        return any(event.by == INTERRUPTED for event in self.training.of(Left, ended=True))

    def progress(self) -> tuple[Progress, ...]:
        """Return how far each rank came."""
        ended = set(self.ended())
        return tuple(
            Progress(
                rank=each.rank,
                forwards=each.reader.counters()[FORWARDS],
                recent=each.reader.communications(),
                ended=each.rank in ended,
                steps=each.reader.counters()[STEPS],
            )
            for each in self.ranks
            if each.rank >= 0
        )

    def look_at_end(self, after: float) -> list[HeldAtEnd | KeptAtEnd]:
        """Look for ranks that do not come to their end, now and then; each is told once."""
        now = time.monotonic()
        if now - self.looked_at_end < min(after, AGAIN):
            return []
        self.looked_at_end = now
        left = {event.pid for event in self.training.of(Left, ended=False)} - self.held
        found = held_at_end([each for each in self.ranks if each.reader.pid in left], self.training, after)
        kept = self._kept_at_end(after)
        self.held.update(each.pid for each in (*found, *kept))
        return [*found, *kept]

    def _kept_at_end(self, after: float) -> list[KeptAtEnd]:
        """Look for ranks that wait for threads of their own, where every rank is seen and none is left that works."""
        there = [each for each in self.ranks if each.rank >= 0]
        seen = {each.rank for each in there}
        if len(seen) < self.training.world_size or any(e.alive and e.activity.still < after for e in there):
            return []
        ended = {event.pid for event in self.training.of(Left, ended=True)}
        ended |= {event.pid for event in self.training.of(Failed)} | self.held
        return kept_at_end([each for each in there if each.reader.pid not in ended], after)

    def look(self, after: float) -> Stalled | None:
        """Look for a hang, now and then; None where there is none, or none that was not told yet."""
        now = time.monotonic()
        if now - self.looked < (AGAIN if self.stands or self.apart else 1.0):
            return None
        self.looked = now
        event = stalled([each for each in self.ranks if each.rank >= 0], self.training, after)
        if event is not None and on_their_way(event, after):
            self.looked = now + SOON
            return None
        stands = tuple((each.rank, each.doing, each.operation) for each in event.ranks) if event else ()
        was_silent, self.is_silent = self.is_silent, event is not None and bool(event.silent)
        if event is not None and event.apart:
            before, self.stands, self.apart = self.apart, (), stands
            return None if stands == before else event
        before, self.stands, self.apart = self.stands, stands, ()
        if self.hung:
            self.hung_at = now
        if event is None or (self.known and event.doing(Doing.FAILED)):
            return None
        if stands == before and not (self.is_silent and not was_silent):
            return None
        return event

    def _is_gone(self, each: Rank) -> bool:
        told = (self.training.of(kind, pid=each.reader.pid) for kind in (Failed, Left))
        return not each.alive and not any(told)
