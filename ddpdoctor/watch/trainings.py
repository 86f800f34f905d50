"""The trainings of one command: folds, sweeps and restarts are told apart by who meets whom, and where.

A command can start several, one after another or at once, and one process can join group after group. Ranks are
compared with those that they meet, so each event belongs to one training.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ddpdoctor.watch.events import Event, Joined, Joining, Left, Started
from ddpdoctor.watch.training import Training

UNKNOWN = -1
"""The rank of a process that has not told it."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """What ranks of one training have in common: their launch, the store's address, the size, the how manyth group."""

    launch: str
    address: str
    world_size: int
    generation: int = 0


@dataclass(slots=True)
class Party:
    """The processes of one training, by pid their rank; ``meeting`` is None before one of them joins."""

    training: Training
    launch: str
    world_size: int
    meeting: Meeting | None = None
    ranks: dict[int, int] = field(default_factory=dict)

    def has_room(self, pid: int, rank: int) -> bool:
        """Whether a process can be this rank of it: no other one is."""
        return pid not in self.ranks and (rank == UNKNOWN or rank not in self.ranks.values())


class Trainings:
    """All that was seen, by training; ``all`` has the events of every one."""

    def __init__(self) -> None:
        """Begin with none."""
        self.all = Training()
        self._parties: list[Party] = []
        self._of: dict[int, Party] = {}

    def __iter__(self) -> Iterator[Training]:
        """Yield each training, oldest first."""
        return iter([party.training for party in self._parties])

    def of(self, pid: int) -> Training:
        """Return the training that a process is in; the latest, where it is in none."""
        if pid in self._of:
            return self._of[pid].training
        return self._parties[-1].training if self._parties else self.all

    def add(self, event: Event) -> Training:
        """Take up an event, and return the training that it belongs to."""
        rank = UNKNOWN if event.rank is None else event.rank
        if isinstance(event, Started):
            self._launched(event, rank)
        elif isinstance(event, Joining):
            self._meets(event.pid, rank, event.address, event.world_size)
            self._rivals(event)
        elif isinstance(event, Joined) and not self.of(event.pid).of(Joining, pid=event.pid):
            self._meets(event.pid, rank, "", event.world_size)  # it had joined before it was watched
        training = self.of(event.pid)
        for each in (self.all,) if training is self.all else (self.all, training):
            each.add(event)
        return training

    def _launched(self, event: Started, rank: int) -> None:
        if event.launch:
            party = self._latest(event.pid, rank, [each for each in self._parties if each.launch == event.launch])
            self._enter(event.pid, rank, party or self._new(event.launch, event.world_size))

    def _meets(self, pid: int, rank: int, address: str, world_size: int) -> None:
        party = self._of.get(pid)
        again = party is not None and bool(party.training.of(Joined, pid=pid) or party.training.of(Left, pid=pid))
        launch = party.launch if party else ""
        been_in = (each for each in self._parties if pid in each.ranks and (again or each is not party))
        before = [each.meeting for each in been_in if each.meeting is not None]
        number = sum((each.address, each.world_size) == (address, world_size) for each in before)
        meeting = Meeting(launch, address, world_size, number)
        if party is not None and not again and self._is_where_it_was_launched(party, pid, rank, world_size):
            party.meeting = party.meeting or meeting
            return
        found = self._latest(pid, rank, [each for each in self._parties if each.meeting == meeting])
        if found is None:
            found = self._new(launch, world_size)
            found.meeting = meeting
        if party is not None and not again:
            del party.ranks[pid]
            party.training.hand_over(pid, found.training)
        self._enter(pid, rank, found)

    def _rivals(self, event: Joining) -> None:
        """Record with both trainings that a process joins, at the same place, as a rank that another process has.

        And that it joins elsewhere, from the same line, as a rank that is missing where others still wait.
        """
        own = self._of[event.pid]
        for each in self._parties:
            if each is not own and each.meeting == own.meeting and event.address and event.rank in each.ranks.values():
                each.training.rivals.append(event)
                own.training.rivals.extend(told for told in each.training.of(Joining) if told.rank == event.rank)
            elif each is not own and event.rank not in each.ranks.values():
                others = [told for told in each.training.of(Joining) if _could_meet(told, event, each.training)]
                own.training.rivals.extend(others)
                each.training.rivals.extend([event] if others else ())

    def _is_where_it_was_launched(self, party: Party, pid: int, rank: int, world_size: int) -> bool:
        """Whether a process joins as the rank that its launcher made it, wherever it thinks that the others are."""
        return rank in {party.ranks[pid], UNKNOWN} and world_size in {party.world_size, UNKNOWN}

    def _latest(self, pid: int, rank: int, parties: list[Party]) -> Party | None:
        """Return the latest, if it has room: before a process can start anew, all of its training have started."""
        return next((each for each in reversed(parties) if each.has_room(pid, rank)), None)

    def _new(self, launch: str, world_size: int) -> Party:
        self._parties.append(Party(Training(), launch, world_size))
        return self._parties[-1]

    def _enter(self, pid: int, rank: int, party: Party) -> None:
        party.ranks[pid] = rank
        self._of[pid] = party


def _could_meet(told: Joining, event: Joining, training: Training) -> bool:
    """Whether a process that still joins was to meet the one of the event, by the line and the number of ranks."""
    alike = (told.site, told.world_size) == (event.site, event.world_size) and told.site is not None
    return alike and told.address != event.address and not training.of(Joined, pid=told.pid)
