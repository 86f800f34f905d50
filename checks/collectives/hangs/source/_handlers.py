"""A rank in the handler of an exception, while another one is in the lines that the handler is for."""

from __future__ import annotations

from typing import NamedTuple

from ddpdoctor.check import Doing, Handler, Position, Site, Stalled, handler_around


class Handling(NamedTuple):
    """The rank in the handler and its line there; the other one and its line in the ``try``."""

    handler: Handler
    rank: Position
    at: Site
    other: Position
    tries: Site


def handling(event: Stalled) -> Handling | None:
    """Find two ranks that wait so, called from the same lines: one has met an exception, and the other one has not."""
    waiting = event.doing(Doing.WAITING)
    for rank in waiting:
        for number, at in enumerate(rank.stack):
            handler = handler_around(at.file, at.line)
            for other in waiting if handler is not None else ():
                tries = _same_call(other, at, rank.stack[number + 1 :])
                if handler is not None and tries is not None and handler.is_for(tries.line):
                    return Handling(handler, rank, at, other, tries)
    return None


def _same_call(other: Position, at: Site, callers: tuple[Site, ...]) -> Site | None:
    """Return where another rank is in a function that the same lines have called."""
    depth = len(other.stack) - len(callers) - 1
    site = other.stack[depth] if depth >= 0 else None
    same = site is not None and (site.file, site.function) == (at.file, at.function)
    return site if same and other.stack[depth + 1 :] == callers else None
