"""Collectives under a condition on the rank, which other ranks skip."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import Communication, Doing, Position, Site, rank_block, rank_condition

if TYPE_CHECKING:
    from ddpdoctor.check import RankBlock, Stalled


class Guarded(NamedTuple):
    """A rank that waits in a collective which other ranks skip: the condition on the rank, and the line under it."""

    position: Position
    test: str
    site: Site


def guarded(event: Stalled) -> Guarded | None:
    """Find it: the line, or that of a caller, stands under a condition on the rank that another rank is not under."""
    for position in event.ranks:
        if position.site is None or position.operation == "backward":
            continue
        others = [each for each in event.ranks if each is not position]
        for site in position.stack or (position.site,):
            block = rank_block(site.file, site.line)
            if block and any(_is_outside(each, block) for each in others):
                return Guarded(position, block.test, site)
    return None


ONE_RANK = re.compile(r"== ?0\b|^not [\w.]*rank\b|main|master|rank_?zero|rank_?0", re.IGNORECASE)


def _is_outside(position: Position, block: RankBlock) -> bool:
    """Whether a rank is not under a condition on the rank; one that has ended leaves only what the test says."""
    if position.doing is Doing.ENDED:
        return ONE_RANK.search(block.test) is not None
    stack = position.stack or ((position.site,) if position.site else ())
    return bool(stack) and not any(block.holds(line.file, line.line) for line in stack)


class Crossed(NamedTuple):
    """Two calls that were taken for each other: one under a condition on the rank, which the other rank has skipped."""

    rank: int
    call: Communication
    test: str
    other: int
    theirs: Communication


def crossed(event: Stalled) -> Crossed | None:
    """Find the first calls of one number at different lines, where one rank makes both calls and the other only one.

    Where each rank makes one of them, they belong together: a rank left a function before, or went through a branch.
    """
    for one in event.ranks:
        own = {each.site for each in one.recent}
        for other in event.ranks:
            theirs = {(each.group, each.number): each for each in other.recent if each.group}
            lines = {each.site for each in other.recent}
            for call in one.recent:
                match = theirs.get((call.group, call.number))
                if match is None or call.site is None or match.site in (None, call.site):
                    continue
                test = rank_condition(call.site.file, call.site.line)
                if call.operation not in POINT_TO_POINT and test and match.site in own and call.site not in lines:
                    return Crossed(one.rank, call, test, other.rank, match)
    return None


POINT_TO_POINT = frozenset({"send", "recv"})
