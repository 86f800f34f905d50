"""Ranks that were in communications that do not match, seen when one of them is gone.

gloo ends a process that is sent more bytes than it made room for: it is gone without an exception, by SIGABRT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import Communication, EpochEnded, EpochStarted, Joined, Site, in_one_loop

from .._messages import POINT_TO_POINT
from .._progress import last_number
from ..source._exits import LeftBy, loop_left_behind
from ..source._one_rank import DEFAULT
from ._callers import caller_of, left_alike, meeting, share_a_loop
from ._compared import first_mismatch
from ._past_it import steps_apart

if TYPE_CHECKING:
    from ddpdoctor.check import PeerLost, Progress, Training

    from .._pairs import Pair


class GoneOn(NamedTuple):
    """A rank that went on to a call while another one was in a later forward; ``batches`` of it where that is why.

    ``skipped``: whether the other rank has left the call out; None where the first may as well have left a loop early.
    ``via`` is the line from which the function of the call was called, where the other rank is in the one that has it.
    """

    rank: int
    call: Communication
    forwards: int
    other: int
    others: int
    site: Site | None
    batches: int | None
    skipped: bool | None
    via: Site | None = None

    @property
    def there(self) -> str:
        """Where the other rank was: in a later forward, or past the line in the same step."""
        return f"was in forward {self.others}" if self.others > self.forwards else "was past it"


def mismatch(event: PeerLost, training: Training) -> Pair | None:
    """Return the first two calls of one number in one group that do not match; of a rank that is gone they are why."""
    return first_mismatch(event.progress) or _gathered(event, training)


def gone_on(event: PeerLost, training: Training) -> GoneOn | None:
    """Return a rank that called what another one, a forward further on or past that line, has not called."""
    return _a_forward_ahead(event, training) or past_it(event)


def _a_forward_ahead(event: PeerLost, training: Training) -> GoneOn | None:
    """Return a rank that had left the loop that another was in: it made fewer forwards, and called what comes later."""
    for one in event.progress:
        call = one.recent[-1] if one.recent else None
        if call is None or call.site is None or call.group not in DEFAULT or call.operation in POINT_TO_POINT:
            continue
        for other in event.progress:
            if other.forwards > one.forwards and call.number > last_number(other, call.group):
                alike = _is_between(one.rank, training) and _passes(one.rank, training) == _passes(other.rank, training)
                via, going = _lines(event, other, call.site)
                return GoneOn(
                    one.rank, call, one.forwards, other.rank, other.forwards, going,
                    _batches(one.rank, other.rank, training), _skipped(call.site, going, via, alike=alike),
                    via,
                )  # fmt: skip
    return None


def past_it(event: PeerLost) -> GoneOn | None:
    """Return a rank that called what another one has come past without, in the same step."""
    found = steps_apart(event)
    if found is None:
        return None
    one, other, at, going = found
    call = one.recent[-1]
    via = None if at == call.site else at
    return GoneOn(one.rank, call, one.forwards, other.rank, other.forwards, going, None, skipped=True, via=via)


def broken_off(event: PeerLost, training: Training) -> LeftBy | None:
    """Return the one way by which a rank has left the loop that the other one was lost in, as its last call tells."""
    gone = gone_on(event, training)
    if gone is None or gone.batches is not None or gone.call.site is None or not event.others:
        return None
    if event.others[0].rank != gone.other:
        return None
    site = gone.call.site
    place = next(
        (number for number, each in enumerate(event.stack) if (each.file, each.function) == (site.file, site.function)),
        None,
    )
    if place is None:
        return None
    outside = (site, *event.stack[place + 1 :])
    found = loop_left_behind(gone.other, event.stack, gone.rank, outside, training)
    return found if found is not None and found.loop.only else None


def _gathered(event: PeerLost, training: Training) -> Pair | None:
    """Find tensors of several sizes in the last call of a rank that is gone: NCCL gathers such, gloo ends over them."""
    if {each.backend for each in training.of(Joined)} != {"gloo"}:
        return None
    for one in event.progress:
        last = one.recent[-1] if one.recent and one.rank in event.gone else None
        if last is None or last.operation != "all_gather":
            continue
        for other in event.progress:
            for theirs in other.recent:
                same = (theirs.group, theirs.number, theirs.operation) == (last.group, last.number, last.operation)
                if same and theirs.shapes != last.shapes:
                    return (one.rank, last), (other.rank, theirs)
    return None


def _place(event: PeerLost, other: Progress) -> Site | None:
    return next((each.site for each in event.others if each.rank == other.rank), None)


def _lines(event: PeerLost, other: Progress, call: Site) -> tuple[Site | None, Site | None]:
    """Return the line from which the function of a call was called, where another rank is in that one; its own line."""
    going = _place(event, other)
    if going is None:
        return None, None
    via = caller_of(call, going)
    if via is not None or going.function == call.function:
        return via, going
    is_first = bool(event.others) and event.others[0].rank == other.rank
    return (meeting(call, event.stack) if is_first else None) or (None, going)


def _passes(rank: int, training: Training) -> list[tuple[int, int, int]]:
    """List the passes that a rank has come to the end of: the loader, its number, the batches."""
    return [(each.loader, each.number, each.batches) for each in training.of(EpochEnded, rank=rank, complete=True)]


def _is_between(rank: int, training: Training) -> bool:
    """Whether a rank has come to the end of its last pass over a loader, and has begun none since."""
    started, ended = training.of(EpochStarted, rank=rank), training.of(EpochEnded, rank=rank, complete=True)
    return bool(started and ended) and (started[-1].loader, started[-1].number) == (ended[-1].loader, ended[-1].number)


def _skipped(call: Site, going: Site | None, via: Site | None, *, alike: bool) -> bool | None:
    """Decide whether a rank in a later forward left a call out, as far as the two lines tell it.

    It did in the innermost loop of the call, or of the line that calls its function; and in an outer one where both
    have been through as many batches, or can only have: else the other rank has left the loop earlier.
    """
    if going is None:
        return None
    same = (going.file, going.function) == (call.file, call.function)
    at = call if same else via
    if at is None:
        return None
    shared = share_a_loop(at, going) and (alike or left_alike(at.file, going.line, at.line))
    left = in_one_loop(at.file, at.line, going.line) or shared
    return left or (False if same else None)


def _batches(done: int, going: int, training: Training) -> int | None:
    """Return the batches of the pass over a loader that one rank has completed, and another is in."""
    ended = training.of(EpochEnded, rank=done, complete=True)
    started = training.of(EpochStarted, rank=going)
    if not ended or not started:
        return None
    last, theirs = ended[-1], started[-1]
    if (last.loader, last.number) != (theirs.loader, theirs.number):
        return None
    through = training.of(EpochEnded, rank=going, loader=theirs.loader, number=theirs.number)
    return None if through else last.batches
