"""A call of one rank and one of all others that stand in one function and meet: the two halves of "one rank first"."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import (
    Site,
    calls_at,
    decided_at,
    in_one_loop,
    last_name,
    one_rank_only,
    other_ranks_only,
    statement_at,
    tree_of,
)

if TYPE_CHECKING:
    from ddpdoctor.check import Communication, Position, Stalled


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


class Passed(NamedTuple):
    """A rank that waits in one half, another one that is past the other half; a call of the first that met that."""

    one: Position
    other: Position
    half: Site
    met: Site | None


def passed_half(event: Stalled) -> Passed | None:
    """Find it where no calls are known, as from outside: the other rank has come further in a function of both."""
    for one in event.ranks:
        if one.site is None or one.recent or not (halves := other_halves(one.site)):
            continue
        for other in event.ranks:
            if other is not one and other.stack and is_further(other, one):
                met = [line for at in one.stack[1:] for line in _within(at, one.operation)]
                half = Site(one.site.file, min(halves), one.site.function)
                return Passed(one, other, half, met[0] if len(met) == 1 else None)
    return None


def is_further(other: Position, one: Position) -> bool:
    """Whether a rank is past a line that has led another one to where it waits, and under no test that it can miss."""
    return any(
        (ours.file, ours.function) == (theirs.file, theirs.function)
        and theirs.line > ours.line
        and not in_one_loop(ours.file, ours.line, theirs.line)
        and not _words(ours) - _words(theirs)
        for ours in one.stack[1:]
        for theirs in other.stack
    )


def _words(site: Site) -> set[str]:
    return {each.words for each in decided_at(site.file, site.line)}


def _within(at: Site, name: str) -> list[Site]:
    """Return the calls of a name in the ``with`` whose first line this is."""
    tree = tree_of(at.file)
    blocks = [each for each in tree.of(ast.With) if each.lineno == at.line]
    calls = (call for block in blocks for call in ast.walk(block) if isinstance(call, ast.Call))
    return [Site(at.file, each.lineno, at.function) for each in calls if last_name(each.func) == name]


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
