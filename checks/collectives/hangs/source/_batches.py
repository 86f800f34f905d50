"""A call in which all ranks meet, behind a test that each rank's own batch decides: not all of them make it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import (
    Doing,
    Position,
    batch_condition,
    calls_at,
    in_one_loop,
    is_head_of_loop_around,
    last_name,
)

from .._messages import POINT_TO_POINT
from .._progress import of_the_first_to_tell
from ._one_rank import DEFAULT, called

if TYPE_CHECKING:
    from ddpdoctor.check import Communication, PeerLost, Progress, Site

BACKWARD = "backward"


class Behind(NamedTuple):
    """A rank that made a call, its line, the line that stands behind the test, the test; a rank that went on without.

    ``later`` says in words how that is known.
    """

    rank: int
    call: str
    at: Site
    site: Site
    test: str
    other: int
    later: str


def behind_a_batch(ranks: Sequence[Position | Progress]) -> Behind | None:
    """Find the last call of a rank that another one has gone on without, where a batch decides who makes it."""
    return next(_behind(ranks), None)


def behind_at_loss(event: PeerLost) -> Behind | None:
    """Find the line at which a rank lost one that had gone on without it: a backward, say, that a batch decides."""
    one = of_the_first_to_tell(event)
    if one is None:
        return None
    further = [each for each in event.progress if each.rank in event.gone and each.forwards > one.forwards]
    for site in event.stack if further else ():
        if test := batch_condition(site.file, site.line):
            at, other = event.stack[0], further[0]
            backward = BACKWARD in {last_name(each.func) for each in calls_at(at.file, at.line)}
            later = f"has begun {other.forwards} forwards, rank {one.rank} {one.forwards}"
            call = BACKWARD if backward else called(at, "a collective")
            return Behind(one.rank, call, at, site, test, other.rank, later)
    return None


def _behind(ranks: Sequence[Position | Progress]) -> Iterator[Behind]:
    for one in ranks:
        for at, site, operation, number in _calls(one):
            test = batch_condition(site.file, site.line)
            if not test:
                continue
            for other in ranks:
                if other is not one and (later := _goes_on(one, other, at, site, number)):
                    yield Behind(one.rank, called(at, operation), at, site, test, other.rank, later)


def _calls(one: Position | Progress) -> Iterator[tuple[Site, Site, str, int]]:
    """Yield what a rank has called last: its line, the lines that led there, the operation, its number in the group."""
    last: Communication | None = one.recent[-1] if one.recent else None
    waits = isinstance(one, Position) and one.doing is Doing.WAITING
    if isinstance(one, Position) and waits and one.operation == BACKWARD and one.site:
        yield one.site, one.site, BACKWARD, 0
    if last is None or last.site is None or last.group not in DEFAULT or last.operation in POINT_TO_POINT:
        return
    stack = one.stack if isinstance(one, Position) and waits and one.site == last.site else ()
    for site in stack or (last.site,):
        yield last.site, site, last.operation, last.number


def _goes_on(one: Position | Progress, other: Position | Progress, at: Site, site: Site, number: int) -> str:
    """Return in words how a rank is known to have gone on without a call; empty where it is not."""
    since = [each for each in other.recent if each.number >= number]
    lines = {(each.file, each.line) for each in (other.stack if isinstance(other, Position) else ())}
    if (number and any(each.site == at for each in since)) or lines & {(at.file, at.line), (site.file, site.line)}:
        return ""
    if other.forwards > one.forwards:
        return f"has begun {other.forwards} forwards, rank {one.rank} {one.forwards}"
    if not number and (more := _is_given_more(one, other)):
        return more
    heads = {line for file, line in lines if file == at.file}
    if other.forwards == one.forwards and any(is_head_of_loop_around(at.file, head, at.line) for head in heads):
        return "is at the head of the loop again, after as many forwards"
    return _in_its_place(since, site, number) if number else ""


def _is_given_more(one: Position | Progress, other: Position | Progress) -> str:
    """Return in words that a rank has gone on to later batches, where a framework goes through the loader."""
    if isinstance(one, Position) and isinstance(other, Position) and other.batches > one.batches:
        made = f"{other.forwards} forwards of {other.batches} batches"
        return f"has made {made}, rank {one.rank} {one.forwards} of {one.batches}"
    return ""


def _in_its_place(since: Sequence[Communication], site: Site, number: int) -> str:
    """Return in words what a rank called at the turn of a call, in the same loop, and behind no such test."""
    met = next((each for each in since if each.number == number and each.group in DEFAULT), None)
    if met is None or met.site is None or met.site.file != site.file:
        return ""
    if not in_one_loop(site.file, site.line, met.site.line) or batch_condition(met.site.file, met.site.line):
        return ""
    return f"called {met.operation} at line {met.site.line} in its place"
