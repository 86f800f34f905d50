"""Collectives under a condition on the rank, which other ranks skip."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import Communication, Doing, Position, Site, condition_of_callers, rank_block, rank_condition

from .._messages import MESSAGES, POINT_TO_POINT
from .._pairs import met_elsewhere
from ..turns._halves import other_halves

if TYPE_CHECKING:
    from ddpdoctor.check import PeerLost, RankBlock, Stalled


UNPAIRED = MESSAGES | {"backward"}


class Guarded(NamedTuple):
    """A rank that waits in a collective which other ranks skip: the condition on the rank, and the line under it."""

    position: Position
    test: str
    site: Site


def guarded(event: Stalled) -> Guarded | None:
    """Find it: the line, or that of a caller, stands under a condition on the rank that another rank is not under."""
    for position in event.ranks:
        if position.site is None or position.operation in UNPAIRED:  # one rank alone receives, as it is meant to
            continue
        others = [each for each in event.ranks if each is not position]
        for site in position.stack or (position.site,):
            block = rank_block(site.file, site.line, otherwise=True)
            if block and not other_halves(site) and any(_is_outside(each, block) for each in others):
                return Guarded(position, block.test, site)
    return None


ONE_RANK = re.compile(r"== ?0\b|^not [\w.]*rank\b|main(?!__)|master|rank_?zero|rank_?0", re.IGNORECASE)


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
    recent = {each.rank: each.recent for each in event.ranks}
    for rank, call, other, theirs in met_elsewhere(recent):
        if call.site is None or theirs.site is None or not call.group or call.operation in POINT_TO_POINT:
            continue
        makes_both = any(each.site == theirs.site for each in recent[rank])
        if makes_both and all(each.site != call.site for each in recent[other]):
            test = rank_condition(call.site.file, call.site.line) or condition_of_callers(
                call.site.file, call.site.function
            )
            if test:
                return Crossed(rank, call, test, other, theirs)
    return None


def skipped_by_those_who_ended(event: PeerLost) -> tuple[str, Site] | None:
    """Return the condition on one rank, and the line under it, that a rank was within which the others are gone from.

    A rank that sends or receives there is meant to do so alone.
    """
    lost = event.others[0].rank if event.others and event.ended else None
    calls = [each.recent[-1].operation for each in event.progress if each.rank == lost and each.recent]
    if lost is None or event.first is not None or not UNPAIRED.isdisjoint(calls):
        return None
    for site in event.stack:
        block = rank_block(site.file, site.line, otherwise=True)
        if block is not None and ONE_RANK.search(block.test):
            return block.test, site
    return None
