"""Two looks at each rank, a moment apart, and what it does by them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.host.process.system_calls import sleeps
from ddpdoctor.host.process.waits.awaited import waits_for_a_sleeper
from ddpdoctor.watch.events import Doing, Failed, Joined, Joining, Left
from ddpdoctor.watch.events.hang import JOINS
from ddpdoctor.watch.monitor.seen.activity import WINDOW, follow, leave_out
from ddpdoctor.watch.monitor.seen.flight import pending
from ddpdoctor.watch.monitor.seen.operation import operation_of
from ddpdoctor.watch.monitor.seen.stacks import stacks
from ddpdoctor.watch.training import Training

if TYPE_CHECKING:
    from ddpdoctor.host.stack import Frame
    from ddpdoctor.watch.events import Pending
    from ddpdoctor.watch.monitor.rank import Rank


PART = 0.9  # of --hang-after: what is followed from outside is looked at once a window


@dataclass(frozen=True, slots=True)
class Look:
    """What two looks at the ranks gave, by pid: the stacks of each, and what torch holds as not complete."""

    first: dict[int, tuple[Frame, ...]]
    second: dict[int, tuple[Frame, ...]]
    flights: dict[int, tuple[Pending, ...]]
    gloo: bool

    def operation(self, pid: int) -> str:
        """Return the communication that a rank is inside of; empty where it is in none.

        NCCL's collectives run on the GPU: the rank waits for that, wherever it asks for a result.
        """
        flight = self.flights.get(pid, ())
        return operation_of(self.second.get(pid, ())) or (flight[0].operation if flight and not self.gloo else "")


def look_twice(asked: list[Rank], training: Training, after: float) -> Look:
    """Take two stacks of each rank, a window apart in which nothing is asked."""
    bases = [each.reader.base for each in asked if not (each.stopped or each.traced)]
    activities = {each.reader.pid: each.activity for each in asked}
    spared = meeting(training, after) | {each.reader.pid for each in asked if each.activity.thread}
    follow(activities)
    first = stacks(bases, spared=spared)
    leave_out(activities)
    time.sleep(WINDOW)
    follow(activities)
    second = stacks(bases, spared=spared)
    flights = pending(bases)
    leave_out(activities)
    return Look(first, second, flights, any(event.backend == "gloo" for event in training.of(Joined)))


def doing_of(each: Rank, look: Look, after: float) -> Doing:
    """Decide what a process does that told of no end; RESTING as long as it has not stood still for long enough."""
    if not each.alive:
        return Doing.DIED
    pid, activity = each.reader.pid, each.activity
    operation = look.operation(pid)
    moved = each.moved() or look.first.get(pid, ()) != look.second.get(pid, ())
    served = activity.is_served and _reads_an_answer(look.second.get(pid, ()))
    if operation in JOINS or (operation and not look.gloo):  # the one asks the store all the time, the other the GPU
        return Doing.WORKING if moved else Doing.WAITING
    if moved or activity.still < WINDOW or activity.moves_data:
        return Doing.WORKING
    if activity.still < PART * after - WINDOW:
        return Doing.RESTING
    return next(
        doing
        for doing, holds in (
            (Doing.STOPPED, each.stopped),
            (Doing.STANDING, each.traced),
            (Doing.WAITING, bool(operation)),
            (
                Doing.ASKING,
                not operation and (activity.asks or served or sleeps(pid, activity.thread) or waits_for_a_sleeper(pid)),
            ),
            (Doing.STANDING, True),
        )
        if holds
    )


def _reads_an_answer(frames: Sequence[Frame]) -> bool:
    """Whether a rank is inside of Python's own reading from a connection, which returns to it with what arrived."""
    return bool(frames) and frames[0].file.endswith(("/socket.py", "/ssl.py"))


def meeting(training: Training, after: float) -> set[int]:
    """Return the processes that have been inside of init_process_group for less than so long."""
    entered = {event.pid for event in training.of(Joining) if time.time() - event.time < after}
    return entered - {event.pid for event in training.of(Joined)}


def gone(pid: int, training: Training) -> Doing | None:
    """Return how a process told that it comes to its end; None where it said nothing."""
    if training.of(Failed, pid=pid):
        return Doing.FAILED
    return Doing.ENDED if training.of(Left, pid=pid, ended=True) else None
