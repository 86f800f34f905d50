"""Finds out where each rank is when one of them has waited too long."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ddpdoctor.host.process.connections import ask_for_quiet_ones, peers
from ddpdoctor.host.process.system_calls import asleep
from ddpdoctor.host.process.waits.awaited import awaited
from ddpdoctor.source.training.polls import question
from ddpdoctor.source.works import waited_work
from ddpdoctor.watch import event_log
from ddpdoctor.watch.events import Doing, Joined, Joining, Position, Stalled, Started
from ddpdoctor.watch.monitor.seen.operation import OF_GROUP, WAIT, inner_function
from ddpdoctor.watch.monitor.stands.among_themselves import by_their_stores, wait_for_each_other
from ddpdoctor.watch.monitor.stands.answering import answering
from ddpdoctor.watch.monitor.stands.by_its_threads import with_threads
from ddpdoctor.watch.monitor.stands.forked import kept_workers
from ddpdoctor.watch.monitor.stands.looks import Look, doing_of, gone, look_twice
from ddpdoctor.watch.monitor.stands.on_loopback import on_loopback
from ddpdoctor.watch.monitor.stands.siblings import siblings
from ddpdoctor.watch.monitor.stands.unresolved import unresolved
from ddpdoctor.watch.training import Training
from ddpdoctor.watch.user_frames import users_sites

if TYPE_CHECKING:
    from ddpdoctor.host.process.connections import Peer
    from ddpdoctor.watch.events import Communication, Site
    from ddpdoctor.watch.monitor.rank import Rank

EARLY = 20.0  # seconds without a move, after which the kernel is asked whether another host is cut off: links come back
LONGER = 2.0  # times --hang-after, for a host all of whose ranks compute: no rank of it waits, as far as is seen here


def stalled(ranks: Iterable[Rank], training: Training, after: float) -> Stalled | None:
    """Look at all ranks, if one has not moved for long.

    None unless one of them waits for others, or none of this host's has met another one for long and others have more;
    and as long as it is open whether another one works or stands still. It is told earlier where a host is cut off.
    """
    ranks = sorted(ranks, key=lambda each: each.rank)
    now = time.monotonic()
    longest = max((now - each.since for each in ranks if each.alive), default=0.0)
    if EARLY <= longest < after and _is_cut_off(ranks):
        after = EARLY
    if longest < after:
        return None
    look = look_twice(
        [each for each in ranks if each.alive and gone(each.reader.pid, training) is None], training, after
    )
    doings = [gone(each.reader.pid, training) or doing_of(each, look, after) for each in ranks]
    store = port_of_the_store(training)
    found = [_position(each, look, doing, (now, store)) for each, doing in zip(ranks, doings, strict=True)]
    size = _size(training)
    waits = any(each.doing is Doing.WAITING and each.seconds >= after for each in found)
    are_kept = _all_kept_here(found, after) if len(found) < size else _nobody_is_left(found, ranks, look, after)
    is_lost = any(each.workers and each.seconds >= after for each in found)
    apart = not waits and not are_kept and not is_lost
    if apart and not (len(found) < size and (_all_stand(found, after) or _all_away(found, training, after))):
        return None
    found = found if waits else by_their_stores(found)
    if any(each.doing is Doing.RESTING for each in found):
        return None
    pids = [each.pid for each in found]
    known = _hosts_of(pids)
    launched = {each.pid for each in training.of(Joining) if each.launched is not None or each.spawned is not None}
    others = siblings(pids, launched.intersection(pids)) if len(pids) < size else ()
    found = with_threads(found, [each.reader.base for each in ranks])
    return Stalled(
        pid=0, time=time.time(), ranks=tuple(found), world_size=size, siblings=others, peers=answering(known),
        on_loopback=on_loopback(pids, training) if len(pids) < size else "", unresolved=unresolved(pids, training),
        apart=apart,
    )  # fmt: skip


def _size(training: Training) -> int:
    """Return how many ranks there are: by their group, by what they call, or by what their launcher has told them."""
    sizes = [each.world_size for each in training.of(Joining)] + [each.world_size for each in training.of(Started)]
    return training.world_size or max(sizes, default=0)


def _is_cut_off(ranks: Iterable[Rank]) -> bool:
    """Whether the kernel knows by now that another host is out of reach, which no patience mends."""
    return any(each.cut for each in _hosts_of([each.reader.pid for each in ranks if each.alive]))


def _hosts_of(pids: Sequence[int]) -> tuple[Peer, ...]:
    """Return the hosts that processes are connected to; the next look tells which of the quiet ones are gone."""
    found = peers(pids)
    ask_for_quiet_ones(found, pids)
    return found


def _all_kept_here(found: Iterable[Position], after: float) -> bool:
    """Whether nothing that another host does lets any of the ranks go on, while those of other hosts wait for them.

    A signal has stopped them, and not the monitor beside them; or each waits for somebody to type, or sleeps for long.
    A thread of its own, for which one waits, can be in a collective.
    """
    return all(each.seconds >= after and (each.doing is Doing.STOPPED or _keeps_itself(each)) for each in found)


def _nobody_is_left(found: Sequence[Position], ranks: Iterable[Rank], look: Look, after: float) -> bool:
    """Whether all ranks of a training stand, and nobody but they could wake one of them."""
    return _all_stand(found, after) and wait_for_each_other(found, look.second, [each.reader.base for each in ranks])


def _all_stand(found: Iterable[Position], after: float) -> bool:
    return all(each.doing is Doing.STANDING and each.seconds >= after for each in found)


def _all_away(found: Sequence[Position], training: Training, after: float) -> bool:
    """Whether all ranks of this host have joined, and each has been elsewhere for long than in what ranks do together.

    One that computes is given twice the time, unless it is in a loop that does nothing but ask; and as much as it takes
    before the first batch, when models and data are loaded.
    """
    joined = {each.pid for each in training.of(Joined)}
    return all(each.pid in joined and _is_away(each, after) for each in found)


def _is_away(each: Position, after: float) -> bool:
    if each.doing in {Doing.ASKING, Doing.STANDING} or (each.doing is Doing.WORKING and _only_asks(each)):
        return each.seconds >= after
    has_begun = each.batches or each.forwards or each.steps
    return each.doing is Doing.WORKING and bool(has_begun) and each.seconds >= LONGER * after


def _only_asks(each: Position) -> bool:
    return each.site is not None and question(each.site.file, each.site.line) is not None


def _keeps_itself(position: Position) -> bool:
    if position.doing is not Doing.STANDING or position.awaited is None:
        return False
    return position.awaited.typed or asleep(position.pid) is not None


def port_of_the_store(training: Training) -> int:
    """Return the port at which the ranks met; 0 where they did not tell."""
    ports = (each.address.rpartition(":")[2] for each in training.of(Joining))
    return next((int(port) for port in ports if port.isdecimal()), 0)


def _position(each: Rank, look: Look, doing: Doing, known: tuple[float, int]) -> Position:
    now, store = known
    pid = each.reader.pid
    frames, flight, recent = look.second.get(pid, ()), look.flights.get(pid, ()), each.reader.communications()
    stack = tuple(users_sites(frames))
    return Position(
        rank=each.rank,
        pid=pid,
        doing=doing,
        seconds=max(0.0, now - each.since),
        batches=each.counters[event_log.BATCHES],
        forwards=each.counters[event_log.FORWARDS],
        steps=each.counters[event_log.STEPS],
        site=stack[0] if stack else None,
        operation=_waits_in(look.operation(pid), recent, stack) if doing is Doing.WAITING else "",
        function=inner_function(frames),
        recent=recent,
        pending=flight,
        stack=stack,
        workers=kept_workers(pid, each.reader.base, frames) if doing is Doing.STANDING else (),
        awaited=awaited(pid, frames, store) if doing in {Doing.STANDING, Doing.ASKING} else None,
    )


def _waits_in(operation: str, recent: tuple[Communication, ...], stack: Sequence[Site]) -> str:
    """Return the communication, with what began it where that was an earlier call, and by the rank's own record.

    Of several that are under way the line tells which one it waits for.
    """
    if operation == OF_GROUP:
        return recent[-1].operation if recent else "a collective"
    if operation != WAIT or not recent:
        return operation
    named = waited_work(stack[0].file, stack[0].line) if stack else ""
    return f"{WAIT} of {named if any(each.operation == named for each in recent) else recent[-1].operation}"
