"""What decides, in the functions that a loop has called, whether a rank comes to the line that it waits at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.check import Guard, LoopLeft, Site, decided_at, is_head_of_loop_around

from ._exits import loop_left_by

if TYPE_CHECKING:
    from ddpdoctor.check import Position, Stalled, Training

Decides = tuple[Site, Guard]
"""A line of the stack, and the test that lets a rank come there."""


def deciding(loop: LoopLeft, waits: Position) -> list[Decides]:
    """List the tests, the innermost function first, that ranks can answer differently."""
    found: list[Decides] = []
    for site in waits.stack:
        within = site.file == loop.file and is_head_of_loop_around(loop.file, loop.line, site.line)
        found += [(site, each) for each in decided_at(site.file, site.line, loop.line if within else 0)]
        if within:
            break
    return found


def left_out_by_test(event: Stalled, training: Training) -> bool:
    """Whether one rank is past a loop that runs as often on all, and a test decides who comes to the other's line."""
    left = loop_left_by(event, training)
    inside = next((each for each in event.ranks if left is not None and each.rank == left.other), None)
    return left is not None and inside is not None and left.loop.alike and bool(deciding(left.loop, inside))
