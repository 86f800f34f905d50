"""Ranks that wait at one line in several groups, each for one that waits in another of them: a circle."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import Doing

from ._compared import NEW_GROUP, last_number

if TYPE_CHECKING:
    from ddpdoctor.check import Communication, Position, Stalled

MADE = "new groups"
"""What the watch calls the calls of new_group, which it counts as torch counts the groups."""


class Link(NamedTuple):
    """A rank that waits in a group, its call, the members of that group, and the one for which it waits."""

    rank: int
    call: Communication
    members: tuple[int, ...]
    awaited: int


def circle(event: Stalled) -> tuple[Link, ...]:
    """Return the ranks of a circle, each of which waits for the next one; nothing where there is none.

    The members of a group are known by the new_group that made it. Two groups of the same ranks are no circle: one rank
    can have taken the wrong one.
    """
    waiting = {each.rank: each for each in event.doing(Doing.WAITING) if each.recent}
    links = {rank: link for rank, each in waiting.items() if (link := _link(each, waiting)) is not None}
    for start in links:
        path: list[Link] = []
        rank = start
        while rank in links and rank not in {each.rank for each in path}:
            path.append(links[rank])
            rank = links[rank].awaited
        if path and rank == path[0].rank and len({each.members for each in path}) > 1:
            return tuple(path)
    return ()


def _link(one: Position, waiting: dict[int, Position]) -> Link | None:
    """Return for whom a rank waits: a member of its group that waits at the same line, and has not made this call."""
    call = one.recent[-1]
    members = _members(one, call.group)
    if call.site != one.site or one.rank not in members:
        return None
    late = (
        rank
        for rank in members
        if rank != one.rank and rank in waiting and waiting[rank].site == one.site
        if waiting[rank].recent[-1].group != call.group and last_number(waiting[rank], call.group) < call.number
    )
    awaited = next(late, None)
    return Link(one.rank, call, members, awaited) if awaited is not None else None


def _members(one: Position, group: str) -> tuple[int, ...]:
    made = (each for each in one.recent if each.operation == NEW_GROUP and each.group == MADE)
    found = next((each.shapes for each in made if str(each.number) == group), "")
    return tuple(int(each) for each in re.findall(r"\d+", found))
