"""A rank that waits in a function which another one has left above that call, and is past now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.check import Doing, Evidence, Finding, Fix, Site, place, returns_above, tests_around

from ...hangs._told import seen, short, table
from ...hangs.calls._callers import share_a_loop

if TYPE_CHECKING:
    from ddpdoctor.check import Exit, Position, Stalled


def returned_early(event: Stalled) -> Finding | None:
    """Return the one `return` above the call, where both ranks have come by the line that calls its function."""
    waiting = event.doing(Doing.WAITING)
    for one in waiting:
        for depth, inner in enumerate(one.stack[:-1]):
            ways = returns_above(inner.file, inner.line)
            if len(ways) == 1 and ways[0].test:
                for other in waiting:
                    if other is not one and _is_past(other, one.stack[depth + 1 :]) and not _has_called(other, one):
                        return _told(one, inner, ways[0], other, event)
    return None


def _is_past(other: Position, callers: tuple[Site, ...]) -> bool:
    """Whether a rank is below the line of a call, in the same function; in no loop, where it can be a step behind."""
    via, *rest = callers
    at = other.stack[-len(callers)] if len(other.stack) >= len(callers) else None
    if at is None or (at.file, at.function) != (via.file, via.function) or at.line <= via.line:
        return False
    same = other.stack[len(other.stack) - len(rest) :] == tuple(rest)
    alike = {*tests_around(via.file, via.line)} <= {*tests_around(at.file, at.line)}
    return same and alike and not any(share_a_loop(each, each) for each in callers)


def _has_called(other: Position, one: Position) -> bool:
    return not one.recent or one.recent[-1].site in {each.site for each in other.recent}


def _told(one: Position, at: Site, way: Exit, other: Position, event: Stalled) -> Finding:
    line = Site(at.file, way.line, at.function)
    return Finding(
        f"rank {one.rank} waits in {one.operation} at {short(one.site)}; rank {other.rank} has left {at.function}() "
        f"before that, by `{way.kind}` at line {way.line}, under `{way.test}`, and waits in {other.operation} at "
        f"{short(other.site)}",
        (Evidence(f"{way.test}: {way.kind}", "the same way on all ranks", str(line)), *seen(event)),
        Fix(
            f"let all ranks come to {one.operation}: return behind it",
            diff=f"-{way.test}:\n-    return ...\n {one.operation}(...)\n+{way.test}:\n+    return ...",
        ),
        place(line, rank=other.rank),
        table=table(event),
    )
