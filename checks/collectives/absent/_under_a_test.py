"""A rank that waits at a line under a test, in a loop in which another rank is past that test, or not there yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.check import Ambiguity, Evidence, Finding, in_one_loop, place, tests_around

from ..hangs._told import seen, short, table
from ._went_on import FIX

if TYPE_CHECKING:
    from ddpdoctor.check import Position, Site, Stalled


def under_a_test(event: Stalled) -> Finding | None:
    """Return that the line of one rank stands under a test in a loop that another rank is in, outside of that test."""
    for one in event.ranks:
        for inner in one.stack:
            tests = [each for each in tests_around(inner.file, inner.line) if "__name__" not in each]
            frames = [(other, each) for other in event.ranks for each in other.stack if other is not one]
            beside = [
                (other, each)
                for other, each in frames
                if (each.file, each.function) == (inner.file, inner.function)
                and in_one_loop(inner.file, inner.line, each.line)
                and tests
                and tests[0] not in tests_around(each.file, each.line)
            ]
            if beside:
                return _decided_apart(one, inner, tests[0], beside[0][0], event)
    return None


def _decided_apart(one: Position, at: Site, test: str, other: Position, event: Stalled) -> Finding:
    return Finding(
        f"rank {one.rank} waits in {one.operation} at {short(one.site)}, which is reached where `{test}`; rank "
        f"{other.rank} is in the same loop, in {other.operation} at {short(other.site)}",
        (Evidence(f"reached where {test}", "the same answer on all ranks", str(at)), *seen(event)),
        FIX,
        place(at, rank=one.rank),
        table=table(event),
        ambiguity=Ambiguity(
            (
                f"`{test}` holds on rank {one.rank} in a step in which it does not on rank {other.rank}",
                f"rank {other.rank} is a step behind: rank {one.rank} has left one out before",
            ),
            f"print the rank, the step and `{test}` there",
        ),
    )
