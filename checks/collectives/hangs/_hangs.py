"""What a training that stands has come to: a family of hangs, so that exactly one check speaks of one."""

from __future__ import annotations

from ddpdoctor.check import JOINS, Claim, Doing, Joining, Marker, Stalled, Training, watch

from ..._hosts.store import meets_nowhere, misses_the_store
from ._all_wait import all_wait, skipped
from ._kinds import GONE, Hang
from .reasons._left import left_by
from .reasons._meeting import met_apart
from .reasons._stops import stop_of_some_ranks
from .reasons._threads import ended_thread
from .source._deciding import left_out_by_test
from .source._guards import guarded


def on_hang(*hangs: Hang) -> Marker:
    """Mark what is shown these hangs."""
    return watch(Stalled, claim=Claim(hang_of, hangs))


def hang_of(event: Stalled, training: Training) -> Hang | None:
    """Decide; what is seen for sure comes before what is concluded.

    None where the ranks meet nowhere: that was said when they set out.
    """
    doings = {position.doing for position in event.ranks}
    pids = {position.pid for position in event.ranks}
    if any(meets_nowhere(each) or misses_the_store(each) for each in training.of(Joining) if each.pid in pids):
        return None
    if Doing.WAITING not in doings:
        return _apart(doings) if event.apart else _nobody_waits(doings)
    if (apart := _never_met(event, training)) is not None:
        return apart
    if not doings & {*GONE} and stop_of_some_ranks(event.ranks, training):
        return Hang.ASKED
    for doing, verdict in (
        *((each, Hang.GONE) for each in GONE),
        (Doing.ENDED, Hang.LEFT),
        (Doing.WORKING, Hang.WORKS),
        (Doing.ASKING, Hang.WORKS),
        (Doing.STANDING, Hang.STANDS),
    ):
        if doing in doings:
            return _for_want_of(verdict, event, training)
    return all_wait(event, training)


def _never_met(event: Stalled, training: Training) -> Hang | None:
    """Decide why ranks do not meet in init_process_group; None where they are past it."""
    if event.unresolved and all(each.operation in JOINS for each in event.doing(Doing.WAITING)):
        return Hang.UNRESOLVED
    if event.doing(*GONE, Doing.WORKING) or not (absent(event, training) or met_apart(event, training)):
        return None
    return Hang.CUT if event.silent else Hang.ON_LOOPBACK if event.on_loopback else Hang.NEVER_JOINED


def _for_want_of(verdict: Hang, event: Stalled, training: Training) -> Hang:
    """Decide why the rank for which the others wait has ended, or stands, where that is known."""
    if verdict is Hang.STANDS and ended_thread(event, training) is not None:
        return Hang.THREAD
    return _why_left(event, training) if verdict is Hang.LEFT else verdict


def _why_left(event: Stalled, training: Training) -> Hang:
    found = skipped(event, training) or (Hang.GUARDED if guarded(event) else Hang.LEFT)
    at_its_end = (
        found is Hang.LEFT and not event.outside and not any(left_by(each.rank, training) for each in event.ranks)
    )
    return Hang.DIVERGED if at_its_end and left_out_by_test(event, training) else found


def _apart(doings: set[Doing]) -> Hang:
    return Hang.AWAY if doings & {Doing.WORKING, Doing.ASKING} else Hang.APART


def _nobody_waits(doings: set[Doing]) -> Hang | None:
    """Decide where no rank is in a communication, which is seen from outside alone: nothing hangs where one works."""
    if doings & {*GONE}:
        return Hang.GONE
    if doings & {Doing.WORKING, Doing.ASKING}:
        return None
    return Hang.STANDS if Doing.STANDING in doings else None


def absent(event: Stalled, training: Training) -> tuple[int, ...]:
    """List the ranks that have not called init_process_group, where those that wait do so in it."""
    if any(position.operation not in JOINS for position in event.doing(Doing.WAITING)):
        return ()
    pids = {position.pid for position in event.ranks}
    came = {each.rank for each in training.of(Joining) if each.pid in pids}
    return tuple(rank for rank in range(event.world_size) if rank not in came)
