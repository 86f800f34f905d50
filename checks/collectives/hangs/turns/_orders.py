"""Calls that ranks make in another order: by two branches of one ``if``, or in a loop through a set."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import Doing, Position, Site, both_in_other_order

from ..._sets import loop_through_a_set

if TYPE_CHECKING:
    from ddpdoctor.check import Stalled

    from .._pairs import Pair


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


def in_order_of_a_set(pair: Pair) -> ast.For | None:
    """Return the loop through a set that both ranks make the same call in, on different parts of it."""
    (_, ours), (_, theirs) = pair
    return loop_through_a_set(ours.site) if (ours.operation, ours.site) == (theirs.operation, theirs.site) else None


def groups_in_order_of_a_set(event: Stalled) -> Pair | None:
    """Return two ranks that wait at one line of a loop through a set, each in a group of its own turn."""
    waiting = [(each.rank, each.recent[-1]) for each in event.doing(Doing.WAITING) if each.recent]
    for (one, ours), (other, theirs) in combinations(waiting, 2):
        pair = (one, ours), (other, theirs)
        if ours.group and theirs.group and ours.group != theirs.group and in_order_of_a_set(pair) is not None:
            return pair
    return None


def _calls(position: Position) -> Iterator[tuple[Site, str]]:
    """Yield the lines of a rank's stack with the name of what each has called."""
    called = position.operation
    for site in position.stack:
        yield site, called
        called = site.function.rpartition(".")[2]
