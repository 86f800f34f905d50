"""The trainings of this host: which processes are their ranks, and who has started these."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ddpdoctor.stuck.ranks.identity import Identity
    from ddpdoctor.stuck.ranks.processes import Python

INIT = 1  # adopts what others left


@dataclass(frozen=True, slots=True)
class Rank:
    """A process that is a rank."""

    process: Python
    identity: Identity

    @property
    def pid(self) -> int:
        """The process's number."""
        return self.process.pid

    @property
    def store(self) -> int:
        """The port at which the ranks' store listens; 0 where nothing was said of it."""
        port = self.process.environ.get("MASTER_PORT", "") or self.identity.address.rpartition(":")[2]
        return int(port) if port.isdecimal() else 0


@dataclass(frozen=True, slots=True)
class Job:
    """Ranks that were started together, in their order, and the process that has started the first of them.

    ``ends_all``: their launcher, which runs, ends all ranks of the host when one fails (torchrun, mp.spawn), so that a
    rank which is missing came to its end.
    """

    ranks: tuple[Rank, ...]
    parent: int
    ends_all: bool

    @property
    def world_size(self) -> int:
        """The ranks of the whole job, on all hosts."""
        return max(each.identity.world_size for each in self.ranks)

    @property
    def address(self) -> str:
        """Where they meet."""
        return next((each.identity.address for each in self.ranks if each.identity.address), "")

    def ended_here(self, there: Iterable[Identity]) -> tuple[int, ...]:
        """Return the ranks that this host had, and has no more; ``there`` is what all its processes were told.

        None where nothing says which it had, or where a rank that is missing need not have come to its end.
        """
        first = self.ranks[0].identity
        if not self.ends_all or first.first_here < 0 or first.local_size < 0:
            return ()
        here = {each.rank for each in there if (each.address, each.run) == (first.address, first.run)}
        here |= {each.identity.rank for each in self.ranks}
        return tuple(each for each in range(first.first_here, first.first_here + first.local_size) if each not in here)

    def __str__(self) -> str:
        """Name it as people know it: by what started it."""
        pids = ", ".join(str(each.pid) for each in self.ranks)
        command = self.ranks[0].process.command
        return f"{len(self.ranks)} of {self.world_size} ranks, PID {pids}: {command}"


def jobs(pythons: Mapping[int, Python], spawned: Mapping[int, Identity]) -> tuple[Job, ...]:
    """Sort the processes that are ranks into trainings; ``spawned`` are those of mp.spawn, by pid.

    One that has started processes of other ranks is a launcher, whatever it was told: torchrun in a pod is told a rank.
    """
    told: dict[Identity, list[Python]] = defaultdict(list)
    for each in pythons.values():
        if each.identity is not None and each.pid not in spawned:
            told[each.identity].append(each)
    below: dict[int, set[Identity]] = defaultdict(set)
    for each in pythons.values():
        if (own := spawned.get(each.pid, each.identity)) is not None:
            below[each.parent].add(own)
    ranks = [Rank(pythons[pid], identity) for pid, identity in spawned.items()]
    for identity, processes in told.items():
        ranks += [Rank(each, identity) for each in _itself(processes, pythons) if below[each.pid] <= {identity}]
    groups: dict[object, list[Rank]] = defaultdict(list)
    for rank in ranks:
        told_all = rank.identity
        apart = "" if told_all.address or told_all.run else rank.process.parent
        groups[told_all.address, told_all.run, told_all.world_size, apart].append(rank)
    return tuple(job for group in groups.values() for job in _without_doubles(group, spawned))


def _itself(processes: list[Python], pythons: Mapping[int, Python]) -> list[Python]:
    """Return which of the processes that were told one rank are it: neither its wrappers nor its loaders' workers.

    That is the one with process groups, before it has any the one with torch; of several that which started the others.
    """
    if len(processes) > 1:
        likely = [each for each in processes if each.backends] or [each for each in processes if each.has_torch]
        processes = likely or processes
    pids = {each.pid for each in processes}
    return [each for each in processes if not pids & {*_ancestors(each, pythons)}]


def _ancestors(each: Python, pythons: Mapping[int, Python]) -> Iterable[int]:
    """Return the processes above one, as far as they run Python."""
    parent = pythons.get(each.parent)
    while parent is not None:
        yield parent.pid
        parent = pythons.get(parent.parent)


def _without_doubles(group: list[Rank], spawned: Mapping[int, Identity]) -> Iterable[Job]:
    """Return a job; several, by their parents, where a rank is there twice: containers can meet at equal addresses."""
    by_parent: dict[int, list[Rank]] = defaultdict(list)
    for each in group:
        by_parent[each.process.parent].append(each)
    numbers = [each.identity.rank for each in group]
    for ranks in [group] if len(set(numbers)) == len(numbers) else by_parent.values():
        ordered = tuple(sorted(ranks, key=lambda each: (each.identity.rank, each.pid)))
        parent = ordered[0].process.parent
        ends_all = ordered[0].pid in spawned or "TORCHELASTIC_RUN_ID" in ordered[0].process.environ
        yield Job(ordered, parent, ends_all and parent != INIT)
