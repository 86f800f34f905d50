"""Communications of ranks that met each other: those of one number in one group."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ddpdoctor.check import Communication, Site, are_alternatives

POINT_TO_POINT = frozenset({"send", "recv"})
"""Operations that meet no one of the same number."""
MESSAGES = POINT_TO_POINT | {"batch_isend_irecv", *(f"Work.wait of {each}" for each in POINT_TO_POINT)}
"""What a rank waits in for a message, or for somebody to take one."""
ROOT = re.compile(r", root (\d+)$")


class Met(NamedTuple):
    """A call of a rank, and what another rank called at its turn."""

    rank: int
    call: Communication
    other: int
    theirs: Communication


def root_of(call: Communication) -> str:
    """Return the rank of the group from which, or to which, all others send; empty where there is none."""
    found = ROOT.search(call.shapes)
    return found[1] if found else ""


def met_elsewhere(recent: Mapping[int, Sequence[Communication]]) -> Iterator[Met]:
    """Yield the calls that met one of another line, by the last communications of each rank, oldest first."""
    for rank, calls in recent.items():
        for other, others in recent.items():
            theirs = {(each.group, each.number): each for each in others}
            for call in calls if other != rank else ():
                met = theirs.get((call.group, call.number))
                if call.site is not None and met is not None and met.site != call.site:
                    yield Met(rank, call, other, met)


def in_branches(one: Site | None, other: Site | None) -> bool:
    """Whether two lines stand in the two branches of one ``if``."""
    if one is None or other is None or one.file != other.file:
        return False
    return are_alternatives(one.file, one.line, other.line)
