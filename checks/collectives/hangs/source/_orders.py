"""Two branches of one ``if`` with the same calls in another order, in which ranks wait for each other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import Position, Site, both_in_other_order

if TYPE_CHECKING:
    from ddpdoctor.check import Stalled


class Turned(NamedTuple):
    """Two ranks, the line of each within its branch, and the test of the ``if``."""

    one: Position
    at: Site
    other: Position
    theirs: Site
    test: str


def turned(event: Stalled) -> Turned | None:
    """Return two ranks each of which comes later to the call that the other one waits in; None where there are none."""
    for one, other in combinations(event.ranks, 2):
        for at, called in _calls(one):
            for theirs, their_call in _calls(other):
                test = at.file == theirs.file and both_in_other_order(
                    at.file, (at.line, called), (theirs.line, their_call)
                )
                if test:
                    return Turned(one, at, other, theirs, test)
    return None


def _calls(position: Position) -> Iterator[tuple[Site, str]]:
    """Yield the lines of a rank's stack with the name of what each has called."""
    called = position.operation
    for site in position.stack:
        yield site, called
        called = site.function.rpartition(".")[2]
