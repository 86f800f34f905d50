"""A step that a rank has left out, and which another one, as many forwards on, was in when it lost the first."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import Communication, Exit, Site, in_one_loop, ways_past

from .._messages import POINT_TO_POINT
from .._progress import last_number, of_the_first_to_tell
from ..source._one_rank import DEFAULT

if TYPE_CHECKING:
    from ddpdoctor.check import PeerLost


class LeftOut(NamedTuple):
    """A rank that made a call of a loop while another one was above it, as many forwards on: the ways past that line.

    The averaging there takes all ranks: the first one is ahead by one that it has left out before.
    """

    rank: int
    call: Communication
    other: int
    at: Site
    ways: tuple[Exit, ...]

    @property
    def in_handlers(self) -> bool:
        """Whether the only way is by the handler of an exception."""
        return len(self.ways) == 1 and "except" in (self.ways[0].kind.split()[0], self.ways[0].test.partition(" ")[0])


def left_out(event: PeerLost) -> LeftOut | None:
    """Find a step that a rank has left out, where nothing else tells why it called what the other one has not."""
    other = of_the_first_to_tell(event)
    if other is None:
        return None
    for one in event.progress:
        call = one.recent[-1] if one.recent and one is not other else None
        if call is None or call.site is None or call.group not in DEFAULT or call.operation in POINT_TO_POINT:
            continue
        at = next((each for each in event.stack if _is_above(each, call.site)), None)
        if at is None or one.forwards != other.forwards or call.number <= last_number(other, call.group):
            continue
        if ways := ways_past(at.file, at.line):
            return LeftOut(one.rank, call, other.rank, at, ways)
    return None


def _is_above(line: Site, call: Site) -> bool:
    """Whether a line of a stack comes before a call, in the same loop of the same function."""
    same = (line.file, line.function) == (call.file, call.function) and line.line < call.line
    return same and in_one_loop(call.file, line.line, call.line)
