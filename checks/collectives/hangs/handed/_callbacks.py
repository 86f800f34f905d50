"""Communications in functions that nobody calls in turn: of a signal, of a thread, of the end of an object."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import Callback, Caller, Communication, Doing, Site, callback_around

from ..source._one_rank import DEFAULT

if TYPE_CHECKING:
    from ddpdoctor.check import PeerLost, Position, Stalled


class InCallback(NamedTuple):
    """A rank that waits in such a function, the line there, the function; another rank, which is not in it."""

    rank: Position
    at: Site
    callback: Callback
    other: Position


def in_callback(event: Stalled) -> InCallback | None:
    """Find a rank that a signal, or the end of an object, has led into a communication; another one is elsewhere."""
    waiting = event.doing(Doing.WAITING)
    for rank in waiting:
        for site in rank.stack or filter(None, (rank.site,)):
            callback = callback_around(site.file, site.line)
            if callback is None or callback.caller not in {Caller.SIGNAL, Caller.OBJECT}:
                continue
            for other in waiting:
                if other is not rank and other.site is not None and not _is_in(callback, site.file, other):
                    return InCallback(rank, site, callback, other)
    return None


def _is_in(callback: Callback, file: str, rank: Position) -> bool:
    return any(each.file == file and callback.holds(each.line) for each in (*rank.stack, rank.site) if each is not None)


class OfThread(NamedTuple):
    """What a thread of a rank has called in the group of all ranks, its function; another rank, what it met there."""

    rank: Position
    call: Communication
    callback: Callback
    other: Position
    met: str


def of_thread(event: Stalled) -> OfThread | None:
    """Find a call of a thread that is under way, and that another rank answers with an operation of another kind.

    The rank itself waits elsewhere: its training uses the same group at the same time.
    """
    for rank in event.doing(Doing.WAITING):
        pending = rank.pending[0] if rank.pending else None
        call = next((each for each in reversed(rank.recent) if each.site and each.group in DEFAULT), None)
        if pending is None or call is None or call.site is None or call.site == rank.site:
            continue
        callback = callback_around(call.site.file, call.site.line)
        if callback is None or callback.caller is not Caller.THREAD or _is_in(callback, call.site.file, rank):
            continue
        for other in event.ranks:
            theirs = other.pending[0] if other.pending else None
            if theirs is None or theirs.number != pending.number or theirs.operation == pending.operation:
                continue
            if call.operation in {pending.operation, theirs.operation}:
                ours = pending if call.operation == pending.operation else theirs
                return OfThread(rank, call, callback, other, str(theirs if ours is pending else pending))
    return None


def of_threads(event: PeerLost) -> tuple[Communication, Callback] | None:
    """Find the call of a thread that is the last one of each rank, where a rank is gone and the ranks were training."""
    if event.first is not None or not event.gone or not event.others or len(event.progress) < 2:  # noqa: PLR2004
        return None
    found = None
    for each in event.progress:
        call = each.recent[-1] if each.recent else None
        if call is None or call.site is None or call.group not in DEFAULT or not each.forwards:
            return None
        callback = callback_around(call.site.file, call.site.line)
        if (
            callback is None
            or callback.caller is not Caller.THREAD
            or any(each.file == call.site.file and callback.holds(each.line) for each in event.stack)
        ):
            return None
        found = call, callback
    return found


def has_ended(rank: Position) -> bool:
    """Whether a rank waits in what the end of its program calls: it has left the script."""
    last = rank.stack[-1] if rank.stack else rank.site
    callback = callback_around(last.file, last.line) if last is not None else None
    return callback is not None and callback.caller is Caller.PROGRAM
