"""How a rank that has come to its end can have left the loop that another one was in, where that is not known."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.check import Ambiguity

from ...hangs.source._exits import loop_parted_by_an_end

if TYPE_CHECKING:
    from ddpdoctor.check import PeerLost, Training


def ways_left(event: PeerLost, gone: int, training: Training) -> Ambiguity | None:
    """Return the ways out of the loop, and past a step of it; None where its source has none."""
    found = loop_parted_by_an_end(event, training)
    if found is None or not found.loop.exits:
        return None
    at = Path(found.loop.file).name
    ways = (f"{each} of {Path(each.file).name}" for each in found.loop.exits)
    ends = (f"the loop at {at}:{found.loop.line} had fewer passes on rank {gone}",) if found.loop.ends_itself else ()
    told = "print(rank, step) at each of these lines: one rank comes there, and the others do not"
    return Ambiguity((*ways, *ends), told)
