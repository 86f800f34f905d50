"""What ranks that wait have called, compared: the first calls that do not match, counters, numbers of batches."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from ddpdoctor.check import Communication, Doing, EpochEnded, EpochStarted, Position, Progress, Stalled, Training

from .._messages import POINT_TO_POINT
from .._pairs import Pair, in_branches, root_of
from ..source._one_rank import DEFAULT

NEW_GROUP = "new_group"
SPLITS = re.compile(r", takes \[(?P<takes>[\d, ]+)\], gives \[(?P<gives>[\d, ]+)\]")
UNEQUAL = frozenset({"all_gather", "gather", "scatter", "all_to_all", "all_to_all_single"})
"""Operations to which ranks rightly give different shapes."""


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
            if ours.operation != theirs.operation or not same_shapes or unlike_splits(rank, ours, other, theirs):
                return (rank, ours), (other, theirs)
    return None


def unlike_splits(
    rank: int, ours: Communication, other: int, theirs: Communication
) -> tuple[int, int, int, int] | None:
    """Return who gives how many rows to whom, who expects another number; None where they agree, or it is not known.

    A rank of the default group alone is known by its number.
    """
    for giver, gives, taker, takes in ((rank, ours, other, theirs), (other, theirs, rank, ours)):
        given, taken = SPLITS.search(gives.shapes), SPLITS.search(takes.shapes)
        if given is None or taken is None or gives.group not in DEFAULT:
            continue
        rows, room = (_numbers(each) for each in (given["gives"], taken["takes"]))
        if max(giver, taker) < min(len(rows), len(room)) and rows[taker] != room[giver]:
            return giver, rows[taker], taker, room[giver]
    return None


def _numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


class TwoGroups(NamedTuple):
    """Two ranks, each in a collective of another group than the other one, and the calls."""

    one: Position
    call: Communication
    other: Position
    theirs: Communication


def in_two_groups(event: Stalled) -> TwoGroups | None:
    """Find two ranks in the two branches of one ``if`` that wait for each other in two groups, in which both are.

    Of two ranks both are in each group, else none would wait; among several a call of either tells so.
    """
    waiting = [each for each in event.doing(Doing.WAITING) if each.recent]
    for one in waiting:
        for other in waiting:
            call, theirs = one.recent[-1], other.recent[-1]
            if one is other or call.group == theirs.group or not in_branches(call.site, theirs.site):
                continue
            are_there = (one.site, other.site) == (call.site, theirs.site)
            is_known = event.world_size == 2 or (last_number(other, call.group) and last_number(one, theirs.group))  # noqa: PLR2004
            if {call.operation, theirs.operation} & {*POINT_TO_POINT, NEW_GROUP} or not (are_there and is_known):
                continue
            if last_number(other, call.group) < call.number and last_number(one, theirs.group) < theirs.number:
                return TwoGroups(one, call, other, theirs)
    return None


def last_number(rank: Position | Progress, group: str) -> int:
    """Return the number of the last communication of a group that a rank has begun; 0 where none is known."""
    return max((each.number for each in rank.recent if each.group == group), default=0)


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


def roots_apart(event: Stalled) -> Pair | None:
    """Return two ranks that wait at one line and name different roots there, as it is seen from outside."""
    named = [(each.rank, each.recent[-1]) for each in event.ranks if each.recent and root_of(each.recent[-1])]
    if not event.outside or not named:
        return None
    first = named[0]
    alike = (each for each in named if each[1].site == first[1].site)
    return next(((first, each) for each in alike if root_of(each[1]) != root_of(first[1])), None)


def iterations(event: Stalled) -> dict[int, dict[str, int]]:
    """Return by rank the counters of the loops around the line where all ranks wait, if these differ; or nothing."""
    first = event.ranks[0]
    if any(each.stack != first.stack for each in event.ranks):
        return {}
    found = {each.rank: dict(each.counters) for each in event.ranks}
    names = [name for name, _ in first.counters]
    apart = [name for name in names if len({values.get(name) for values in found.values()}) > 1]
    known = [name for name in apart if all(name in values for values in found.values())]
    return {rank: {name: values[name] for name in known} for rank, values in found.items()} if known else {}


def unlike_passes(training: Training) -> dict[int, int]:
    """Return by rank the batches of the first pass of a training of which ranks had different numbers; or nothing."""
    passes: dict[tuple[int, int], dict[int, int]] = {}
    for each in training.of(EpochEnded, complete=True, trained=True):
        if each.rank is not None:
            passes.setdefault((each.loader, each.number), {})[each.rank] = each.batches
    return next((counts for _, counts in sorted(passes.items()) if len(set(counts.values())) > 1), {}) or _empty(
        training
    )


def _empty(training: Training) -> dict[int, int]:
    """Return by rank the batches of the first pass that gave a rank none: of a pass that goes on, those to come."""
    for none in training.of(EpochEnded, complete=True, batches=0):
        begun = training.of(EpochStarted, loader=none.loader, number=none.number, training=True)
        lengths = {each.rank: each.batches for each in begun if each.rank is not None and each.batches is not None}
        if none.rank in lengths and len(lengths) > 1 and max(lengths.values()) > lengths[none.rank] == 0:
            return lengths
    return {}


def uneven(event: Stalled, training: Training) -> dict[int, int]:
    """Return the batches of the latest pass of a loader by rank, if one rank has left it and another goes on in it.

    The one that has left it can be in the next one by now.
    """
    passes = training.by_rank(EpochStarted, training=True)
    if len({each.loader for each in passes.values()}) != 1 or len(passes) < len(event.ranks):
        return {}
    loader, number = min((each.loader, each.number) for each in passes.values())
    ended = training.by_rank(EpochEnded, loader=loader, number=number)
    if any(each.number > number and not (rank in ended and ended[rank].complete) for rank, each in passes.items()):
        return {}  # begun anew, before the data set had no more
    counts = {each.rank: each.batches for each in ended.values() if each.rank is not None}
    going_on = [rank for rank, each in passes.items() if rank not in counts and each.number == number]
    lengths = {each.batches for each in passes.values()}
    if len(lengths) == 1 and None not in lengths and all(each.complete for each in ended.values()):
        return {}  # all are to have as many: the other one is in the last of them
    return counts if counts and going_on else {}
