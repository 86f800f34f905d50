"""One half of "one rank first" that a rank waits in, where another one has gone past its own half without the call."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import Doing, Site, decided_at

from .._messages import ALL
from ._halves import is_further, other_halves

if TYPE_CHECKING:
    from ddpdoctor.check import Position, Stalled


class Missed(NamedTuple):
    """The rank that waits in its half, the one that has made fewer calls in its own; that line, the calls of both.

    ``under`` is what decides there, in words.
    """

    one: Position
    other: Position
    half: Site
    calls: int
    others: int
    under: str


def missed_half(event: Stalled) -> Missed | None:
    """Find it where all calls of both ranks are known, and the other one is past the call that led the first there."""
    known = [each for each in event.doing(Doing.WAITING) if each.site is not None and len(each.recent) < ALL]
    for one in known if not event.outside else ():
        halves = other_halves(one.site) if one.site is not None else set()
        for other in known if halves else ():
            if one.site is None or other is one or not is_further(other, one):
                continue
            calls = [each for each in one.recent if each.site == one.site]
            others = [each for each in other.recent if each.site and _is_at(each.site, one.site.file, halves)]
            if len(others) < len(calls):
                half = Site(one.site.file, min(halves), one.site.function)
                under = [each.words for each in decided_at(half.file, half.line)]
                return Missed(one, other, half, len(calls), len(others), under[0] if len(under) == 1 else "")
    return None


def _is_at(site: Site, file: str, lines: set[int]) -> bool:
    return site.file == file and site.line in lines
