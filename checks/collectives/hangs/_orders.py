"""Ranks that make other calls than each other, or the same ones in another order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import Communication, Position, Progress, Site, both_in_other_order

from ._pairs import POINT_TO_POINT, in_branches, root_of

if TYPE_CHECKING:
    from ddpdoctor.check import Stalled

NEW_GROUP = "new_group"
UNEQUAL = frozenset({"all_gather", "gather", "scatter", "all_to_all", "all_to_all_single"})
"""Operations to which ranks rightly give different shapes."""


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


def first_mismatch(
    ranks: Iterable[Position | Progress],
) -> tuple[tuple[int, Communication], tuple[int, Communication]] | None:
    """Return the first two communications, with their ranks, that should match and do not: the n-th of one group.

    Only those count that Python begins; send and recv match no one of the same number.
    """
    calls: dict[tuple[str, int], list[tuple[int, Communication]]] = {}
    for position in ranks:
        for each in position.recent:
            if each.group and each.operation not in POINT_TO_POINT:
                calls.setdefault((each.group, each.number), []).append((position.rank, each))
    for _, alike in sorted(calls.items(), key=lambda item: item[1][0][1].time):
        (rank, ours), *others = alike
        for other, theirs in others:
            if ours.operation == theirs.operation == NEW_GROUP and not _share_ranks(ours, theirs):
                continue  # each makes its own group alone, which the newer versions of torch let pass
            unequal = ours.operation in UNEQUAL and root_of(ours) == root_of(theirs)
            same_shapes = ours.shapes == theirs.shapes or unequal
            if ours.operation != theirs.operation or not same_shapes:
                return (rank, ours), (other, theirs)
    return None


def _share_ranks(one: Communication, other: Communication) -> bool:
    """Whether two groups, by the ranks that they are made of, have a rank in common."""
    ranks = [set(re.findall(r"\d+", each.shapes)) for each in (one, other)]
    return not all(ranks) or not ranks[0].isdisjoint(ranks[1])


def at_odds(event: Stalled) -> tuple[Position, Position] | None:
    """Return two ranks in different operations at one line, or in the two branches of one ``if``.

    Of ranks that were watched it is known what they called, which is better.
    """
    if not event.outside:
        return None
    first = event.ranks[0]
    for other in event.ranks[1:]:
        if first.operation == other.operation or "backward" in {first.operation, other.operation}:
            continue
        if first.stack == other.stack or in_branches(first.site, other.site):
            return first, other
    return None
