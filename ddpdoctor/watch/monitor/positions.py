"""Finds out where each rank is when one of them has waited too long."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from ddpdoctor.host.stack import in_backward
from ddpdoctor.watch import event_log
from ddpdoctor.watch.events import Doing, Failed, Joined, Joining, Left, Position, Site, Stalled
from ddpdoctor.watch.monitor.flight import pending
from ddpdoctor.watch.monitor.siblings import BUSY, siblings, used
from ddpdoctor.watch.monitor.stacks import stacks
from ddpdoctor.watch.training import Training
from ddpdoctor.watch.user_frames import is_users

if TYPE_CHECKING:
    from ddpdoctor.host.stack import Frame
    from ddpdoctor.watch.event_log import Reader

LOOK = 1.0  # seconds between two looks at a rank
# Frames of torch that wait for others, by the end of their file's path.
WAITS = ("torch/distributed/distributed_c10d.py", "torch/distributed/rendezvous.py", "torch/nn/parallel/distributed.py")


@dataclass(slots=True)
class Rank:
    """A process that the monitor follows; ``since`` is when its counters last moved (time.monotonic)."""

    reader: Reader
    rank: int
    process: psutil.Process | None
    counters: tuple[int, ...] = ()
    since: float = 0.0

    def moved(self) -> bool:
        """Look at the counters; say whether they moved."""
        counters = self.reader.counters()[: event_log.SAMPLING_MICROSECONDS]
        if counters != self.counters:
            self.counters, self.since = counters, time.monotonic()
            return True
        return False

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


def stalled(ranks: Iterable[Rank], training: Training, after: float) -> Stalled | None:
    """Look at all ranks, if one has not moved for long; None unless one of them waits for others."""
    ranks = sorted(ranks, key=lambda each: each.rank)
    now = time.monotonic()
    if not any(each.alive and now - each.since >= after for each in ranks):
        return None
    asked = [each for each in ranks if each.alive and not _stopped(each) and _gone(each.reader.pid, training) is None]
    bases = [each.reader.base for each in asked]
    spared = meeting(training, after)
    used = {each.reader.pid: _cpu(each) for each in ranks}
    first = stacks(bases, spared=spared)
    time.sleep(LOOK)
    second = stacks(bases, spared=spared)
    flights = pending(bases)
    busy = {each.reader.pid: _cpu(each) - used[each.reader.pid] > BUSY * LOOK for each in ranks}
    gloo = any(event.backend == "gloo" for event in training.of(Joined))

    def position(each: Rank) -> Position:
        pid = each.reader.pid
        frames = second.get(pid, ())
        flight = flights.get(pid, ())
        # NCCL's collectives run on the GPU: the rank waits for that, wherever it asks for a result.
        operation = _waits(frames) or (flight[0].operation if flight and not gloo else "")
        moved = each.moved() or first.get(pid) != frames
        gone = _gone(pid, training)
        if gone is not None or not each.alive:
            doing = gone or Doing.DIED
        elif _stopped(each):
            doing = Doing.STOPPED
        elif operation and not moved and not (busy[pid] and gloo):
            doing = Doing.WAITING
        else:
            doing = Doing.WORKING if moved or busy[pid] else Doing.STANDING
        users = next((frame for frame in frames if is_users(frame.file)), None)
        return Position(
            rank=each.rank,
            pid=pid,
            doing=doing,
            seconds=now - each.since,
            batches=each.counters[event_log.BATCHES],
            forwards=each.counters[event_log.FORWARDS],
            steps=each.counters[event_log.STEPS],
            site=Site(users.file, users.line, users.function) if users else None,
            operation=operation if doing is Doing.WAITING else "",
            function=frames[0].function if frames else "",
            recent=each.reader.communications(),
            pending=flight,
        )

    found = tuple(map(position, ranks))
    waiting = [each for each in found if each.doing is Doing.WAITING and each.seconds >= after]
    if not waiting:
        return None
    size = training.world_size or _told(training)
    others = siblings(each.pid for each in found) if len(found) < size else ()
    return Stalled(pid=0, time=time.time(), ranks=found, world_size=size, siblings=others)


def meeting(training: Training, after: float) -> set[int]:
    """Return the processes that have been inside of init_process_group for less than so long."""
    entered = {event.pid for event in training.of(Joining) if time.time() - event.time < after}
    return entered - {event.pid for event in training.of(Joined)}


def _told(training: Training) -> int:
    return max((event.world_size for event in training.of(Joining)), default=0)


def _gone(pid: int, training: Training) -> Doing | None:
    """Return how a process told that it comes to its end; None where it said nothing."""
    if training.of(Failed, pid=pid):
        return Doing.FAILED
    return Doing.ENDED if training.of(Left, pid=pid, ended=True) else None


def _stopped(rank: Rank) -> bool:
    try:
        return rank.process is not None and rank.process.status() == psutil.STATUS_STOPPED
    except psutil.NoSuchProcess:
        return False


def _cpu(rank: Rank) -> float:
    return used(rank.process) if rank.process is not None else 0.0


def _waits(frames: tuple[Frame, ...]) -> str:
    """Return the name of the communication that a stack is inside of; empty when it is in none."""
    name = ""
    for frame in frames:
        if is_users(frame.file):
            break
        if in_backward(frame.file, frame.function):
            return "backward"
        if frame.file.endswith(WAITS):
            name = frame.function
    return {"__init__": "DistributedDataParallel()", "forward": "forward of DistributedDataParallel"}.get(name, name)
