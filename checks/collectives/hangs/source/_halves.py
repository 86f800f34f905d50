"""A call of one rank and one of all others that stand in one function and meet: the two halves of "one rank first"."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import (
    Site,
    calls_at,
    decided_at,
    last_name,
    one_rank_only,
    other_ranks_only,
    statement_at,
    tree_of,
)

if TYPE_CHECKING:
    from ddpdoctor.check import Communication, Stalled


class OutOfTurn(NamedTuple):
    """A call of a rank that met one half in place of the other one, at which the rank waits now; what led to it."""

    rank: int
    call: Communication
    other: int
    theirs: Communication
    half: Site
    under: str


def out_of_turn(event: Stalled) -> OutOfTurn | None:
    """Find a rank that waits in one half, where another rank's half has met a call of somewhere else."""
    for one in event.ranks:
        if one.site is None or not (halves := other_halves(one.site)):
            continue
        own = {(each.group, each.number): each for each in one.recent}
        for other in event.ranks:
            for theirs in other.recent if other is not one else ():
                met = own.get((theirs.group, theirs.number))
                if met is None or met.site is None or theirs.site is None or theirs.site.file != one.site.file:
                    continue
                if theirs.site.line in halves and met.site != one.site and met.operation == theirs.operation:
                    decided = [each.words for each in decided_at(met.site.file, met.site.line)]
                    under = decided[0] if len(decided) == 1 else ""
                    return OutOfTurn(one.rank, met, other.rank, theirs, one.site, under)
    return None


def other_halves(site: Site) -> set[int]:
    """Return the lines of the same function that call the same, where the ranks come that a line's test keeps out."""
    tree = tree_of(site.file)
    statement = statement_at(tree, site.line)
    function = tree.function(statement) if statement is not None else None
    names = {last_name(each.func) for each in calls_at(site.file, site.line)} - {""}
    is_one, is_others = one_rank_only(site.file, site.line), other_ranks_only(site.file, site.line)
    if function is None or not (is_one or is_others):
        return set()
    same = [
        (each.lineno, tree.function(each) is function)
        for each in tree.of(ast.Call)
        if last_name(each.func) in names and each.lineno != site.line
    ]
    return {
        line
        for line, is_there in same
        if is_there and (other_ranks_only(site.file, line) if is_one else one_rank_only(site.file, line))
    }
