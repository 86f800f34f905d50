"""Where the ranks of several hosts waited, put together from the lines that the watch of each has printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.check import RANKS_LINE, Training, stalled_from

from ._hangs import Hang, hang_of

if TYPE_CHECKING:
    from ddpdoctor.check import Log, Record, Stalled

NOTHING_TOLD = Training()
"""The lines tell where the ranks are, and nothing of what they called before."""


def hang_in(record: Record, log: Log, *hangs: Hang) -> Stalled | None:
    """Return the hang that the lines tell together, if it is one of these; with the first of these lines alone."""
    found = list(log.find(RANKS_LINE))
    if not found or found[0][0] is not record:
        return None
    event = stalled_from(match[1] for _, match in found)
    return event if event is not None and hang_of(event, NOTHING_TOLD) in hangs else None
