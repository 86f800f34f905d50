"""The trainings of this host: which processes are their ranks, and who has started these."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpdoctor.stuck.identity import Identity
    from ddpdoctor.stuck.processes import Python

LAUNCHERS = (
    ("torchrun", "torchrun"), ("torch.distributed.run", "torchrun"), ("torch.distributed.launch", "torchrun"),
    ("accelerate", "accelerate launch"), ("deepspeed", "deepspeed"), ("ray", "ray"),
)  # fmt: skip
ENDS_ALL = frozenset({"torchrun", "mp.spawn", "accelerate launch", "deepspeed"})
"""Launchers that end all ranks of the host when one of them fails: one that is missing came to its end."""


@dataclass(frozen=True, slots=True)
class Rank:
    """A process that is a rank."""

    process: Python
    identity: Identity

    @property
    def pid(self) -> int:
        """The process's number."""
        return self.process.pid


@dataclass(frozen=True, slots=True)
class Job:
    """Ranks that were started together, in their order; ``launcher`` is what started them, empty where unknown."""

    ranks: tuple[Rank, ...]
    launcher: str
    parent: int

    @property
    def world_size(self) -> int:
        """The ranks of the whole job, on all hosts."""
        return max(each.identity.world_size for each in self.ranks)

    @property
    def address(self) -> str:
        """Where they meet."""
        return next((each.identity.address for each in self.ranks if each.identity.address), "")

    @property
    def missing_here(self) -> tuple[int, ...]:
        """The ranks that this host was to have, and has not; none where nothing says what it was to have."""
        first = self.ranks[0].identity
        if first.first_here < 0 or first.local_size < 0:
            return ()
        here = {each.identity.rank for each in self.ranks}
        return tuple(each for each in range(first.first_here, first.first_here + first.local_size) if each not in here)

    def __str__(self) -> str:
        """Name it as people know it: by what started it."""
        pids = ", ".join(str(each.pid) for each in self.ranks)
        command = self.ranks[0].process.command
        return f"{len(self.ranks)} of {self.world_size} ranks, PID {pids}: {command}"


def jobs(pythons: Mapping[int, Python], spawned: Mapping[int, Identity]) -> tuple[Job, ...]:
    """Sort the processes that are ranks into trainings; ``spawned`` are those of mp.spawn, by pid."""
    ranks = [
        Rank(each, told)
        for each in pythons.values()
        if (told := spawned.get(each.pid, each.identity)) is not None
        and not _is_helper(each, pythons, spawned)
        and not _is_launcher(each, pythons, spawned)
    ]
    groups: dict[object, list[Rank]] = defaultdict(list)
    for each in ranks:
        own = each.identity
        alone = own.address or own.run
        groups[own.address, own.run, own.world_size, "" if alone else each.process.parent].append(each)
    return tuple(job for group in groups.values() for job in _without_doubles(group, pythons, spawned))


def _is_helper(each: Python, pythons: Mapping[int, Python], spawned: Mapping[int, Identity]) -> bool:
    """Whether it is a loader's worker, or another process that a rank has started: it was told what its parent was."""
    parent = pythons.get(each.parent)
    if each.pid in spawned:
        return False
    if parent is not None and parent.pid in spawned:
        return True
    return parent is not None and parent.identity == each.identity


def _is_launcher(each: Python, pythons: Mapping[int, Python], spawned: Mapping[int, Identity]) -> bool:
    """Whether it has started ranks itself: in a pod, torchrun has the variables of a rank of its own."""
    children = [child for child in pythons.values() if child.parent == each.pid]
    return any(child.pid in spawned or child.identity not in (None, each.identity) for child in children)


def _without_doubles(
    group: list[Rank], pythons: Mapping[int, Python], spawned: Mapping[int, Identity]
) -> Iterable[Job]:
    """Yield a job; several, by their parents, where a rank is there twice: containers can meet at equal addresses."""
    by_parent: dict[int, list[Rank]] = defaultdict(list)
    for each in group:
        by_parent[each.process.parent].append(each)
    numbers = [each.identity.rank for each in group]
    for ranks in [group] if len(set(numbers)) == len(numbers) else by_parent.values():
        ordered = tuple(sorted(ranks, key=lambda each: (each.identity.rank, each.pid)))
        parent = ordered[0].process.parent
        yield Job(ordered, "mp.spawn" if ordered[0].pid in spawned else _launcher(pythons.get(parent)), parent)


def _launcher(parent: Python | None) -> str:
    words = parent.command.split()[:4] if parent is not None else []
    return next((name for word, name in LAUNCHERS if any(each.endswith(word) for each in words)), "")
