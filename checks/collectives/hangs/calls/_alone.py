"""A collective that one rank called by itself, seen when a rank is gone: gloo ends a process at a size that differs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import Communication, are_alternatives, one_rank_calls, one_rank_only

from .._messages import POINT_TO_POINT
from .._pairs import in_branches, met_elsewhere
from .._progress import of_the_first_to_tell
from ..source._one_rank import DEFAULT, condition
from ..turns._halves import other_halves
from ._compared import last_number

if TYPE_CHECKING:
    from ddpdoctor.check import PeerLost, Progress


class Alone(NamedTuple):
    """The rank that called it, the call, what lets it alone come there; the rank that had gone on."""

    rank: int
    call: Communication
    guard: str
    other: int


class Lone(NamedTuple):
    """The same, where no other rank is seen from this host."""

    rank: int
    call: Communication
    guard: str


def called_alone(event: PeerLost) -> Alone | None:
    """Find it among the last calls: it is under a condition on the rank, and another rank has gone on without it."""
    for one in event.progress:
        call = one.recent[-1] if one.recent else None
        if call is None or call.site is None or call.group not in DEFAULT or call.operation in POINT_TO_POINT:
            continue
        guard = condition(call.site)
        other = next((each for each in event.progress if each is not one and _has_passed(each, one, call)), None)
        if guard and other and not other_halves(call.site):
            return Alone(one.rank, call, guard, other.rank)
    return _paired_with_another(event) or _lost_in_a_forward(event) or _unanswered(event) or _died_in(event)


FORWARD = "forward or backward of a wrapped model"


def _lost_in_a_forward(event: PeerLost) -> Alone | None:
    """Find a rank that lost the others where it alone called the wrapped model, under a condition on the rank."""
    one = of_the_first_to_tell(event)
    if one is None:
        return None
    for site in event.stack:
        guard = condition(site)
        if guard and (other := next((each for each in event.progress if each.forwards < one.forwards), None)):
            call = Communication(one.forwards, event.others[0].time, FORWARD, "", "", site)
            return Alone(one.rank, call, guard, other.rank)
    return None


def _paired_with_another(event: PeerLost) -> Alone | None:
    """Find a call that met one of another line: what all ranks call later of the same group, such as a forward."""
    for rank, call, other, theirs in met_elsewhere({each.rank: each.recent for each in event.progress}):
        if call.site is None or theirs.site is None or call.operation in POINT_TO_POINT:
            continue
        guard = condition(call.site)
        if guard and not (condition(theirs.site) or in_branches(call.site, theirs.site) or other_halves(call.site)):
            return Alone(rank, call, guard, other)
    return None


def _unanswered(event: PeerLost) -> Alone | None:
    """Find the last call of a rank that one rank alone comes to, where another one was lost in something else.

    The other one was in the midst of a communication that Python did not begin, such as the averaging of gradients: it
    has called nothing of this number.
    """
    other = of_the_first_to_tell(event)
    if other is None or not event.stack or any(each.operation in POINT_TO_POINT for each in other.recent[-1:]):
        return None
    for one in event.progress:
        call = one.recent[-1] if one is not other and one.recent else None
        if call is None or call.site is None or call.group not in DEFAULT or call.operation in POINT_TO_POINT:
            continue
        file = call.site.file
        guard = one_rank_only(file, call.site.line) or one_rank_calls(file, call.site.function)
        beside = any(are_alternatives(file, call.site.line, each.line) for each in event.stack)
        if guard and not (beside or other_halves(call.site)) and last_number(other, call.group) < call.number:
            return Alone(one.rank, call, guard, other.rank)
    return None


def _died_in(event: PeerLost) -> Alone | None:
    """Find a rank that died in a call that it alone comes to, for certain, where another one has gone on without it.

    It has made forwards of its own there, so that those of the other one tell nothing: that is past as many steps. The
    other one can be gone as well: mp.spawn ends all as soon as one has died.
    """
    for one in event.progress:
        call = one.recent[-1] if one.rank in event.gone and one.recent else None
        if call is None or call.site is None or call.group not in DEFAULT or call.operation in POINT_TO_POINT:
            continue
        guard = one_rank_only(call.site.file, call.site.line)
        others = (each for each in event.progress if each is not one and last_number(each, call.group) < call.number)
        other = next((each for each in others if each.steps >= one.steps and each.forwards > each.steps), None)
        if guard and other:
            return Alone(one.rank, call, guard, other.rank)
    return None


def died_where_it_came_alone(event: PeerLost) -> Lone | None:
    """Find a rank that is gone and whose last call is one that it alone comes to, for certain; others are not seen."""
    for one in event.progress:
        call = one.recent[-1] if one.rank in event.gone and one.recent else None
        if call is None or call.site is None or call.group not in DEFAULT or call.operation in POINT_TO_POINT:
            continue
        guard = one_rank_only(call.site.file, call.site.line)
        if guard and not other_halves(call.site):
            return Lone(one.rank, call, guard)
    return None


def _has_passed(other: Progress, one: Progress, call: Communication) -> bool:
    """Whether a rank is past a call that it has not made: in a later forward, or at the end of its program."""
    if last_number(other, call.group) >= call.number:
        return False
    return other.ended or other.forwards > one.forwards
