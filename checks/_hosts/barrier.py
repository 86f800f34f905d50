"""The store based barrier, in which init_process_group and new_group wait for all ranks, as it reports its count."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ddpdoctor.check import Log, Record

# torch 2.2 writes "rank: 2 ... worker_count=4", newer ones "rank 2 ... num_workers_joined=4".
BARRIER = (
    r"store based barrier [^\n]{0,60}?rank:? (\d+), (?:for )?key: store_based_barrier_key:(\S+) "
    r"\(world_size=(\d+), (?:worker_count|num_workers_joined)=(\d+)"
)
SPAWN = r"torch[./\\]multiprocessing[./\\]spawn|\bmp\.spawn\(|-- Process \d+ terminated with the following error"
RESTART = r"attempt_[1-9]|\d/\d{1,6} attempts left|restart_count=[1-9]|[Rr]estarting worker group"
SURE = 3  # worlds in one store: a left-over or a second start makes two, only restarts make more


@dataclass(frozen=True, slots=True)
class Barrier:
    """What a rank said while it waited."""

    rank: int
    key: str
    world: int
    joined: int
    timed_out: bool

    @property
    def is_first(self) -> bool:
        """Whether it belongs to init_process_group; new_group counts on, or has a name of its own."""
        return self.key in {"0", "1", "default_pg"}

    @property
    def is_beyond(self) -> bool:
        """Whether the rank is not one of the world's: more processes have ranks than the world has room for."""
        return self.is_first and self.rank >= self.world

    @property
    def starts(self) -> int:
        """How many times a whole world was counted; 0 when the count is no multiple of the world size."""
        times, rest = divmod(self.joined, self.world)
        return 0 if rest else times


def barrier(record: Record, match: re.Match[str]) -> Barrier:
    """Read the message."""
    return Barrier(int(match[1]), match[2], int(match[3]), int(match[4]), "Timed out" in record.text)


def spawned(record: Record, log: Log) -> tuple[Record, re.Match[str]] | None:
    """Find the sign that mp.spawn started the process: in its own traceback, or elsewhere."""
    own = re.search(SPAWN, record.text)
    return (record, own) if own else log.first(SPAWN)
