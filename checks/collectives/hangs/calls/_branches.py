"""A forward of a sharded model in which one rank gathers the weights of a part that another rank leaves out."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import Position, Progress, tests_around

from ..handed._called import INNER
from ._compared import first_mismatch

if TYPE_CHECKING:
    from ddpdoctor.check import Communication, Site

COMMON = {"self", "torch", "math", "len", "isinstance", "hasattr", "getattr", "any", "all", "bool"}
"""Names of a test that tell nothing of what differs between two calls of one forward."""


class Branch(NamedTuple):
    """The rank that went into the branch, the line there, the test around it; the rank that did not, its call."""

    rank: int
    site: Site
    test: str
    other: int
    theirs: Communication


def in_branch(ranks: Sequence[Position | Progress]) -> Branch | None:
    """Find the part: a line of one rank, under an ``if`` of its function, that the other rank has not come to."""
    mismatch = first_mismatch(ranks)
    positions = {each.rank: each for each in ranks}
    for (rank, ours), (other, theirs) in (mismatch, mismatch[::-1]) if mismatch else ():
        if ours.operation not in INNER or ours.site is None or rank not in positions:
            continue
        been = {(each.file, each.line) for each in (theirs.site, *_stack(positions[other])) if each}
        for site in _lines(positions[rank], ours.site):
            tests = [] if (site.file, site.line) in been else tests_around(site.file, site.line)
            if test := next((each for each in tests if _is_of_a_call(each)), ""):
                return Branch(rank, site, test, other, theirs)
    return None


def _stack(position: Position | Progress) -> tuple[Site, ...]:
    return position.stack if isinstance(position, Position) else ()


def _lines(position: Position | Progress, last: Site) -> tuple[Site, ...]:
    """Return the lines of forwards that led to the call."""
    stack = _stack(position) if isinstance(position, Position) and position.site == last else ()
    return tuple(each for each in (stack or (last,)) if each.function.rpartition(".")[2] == "forward")


def _is_of_a_call(test: str) -> bool:
    """Whether a test is about what a call was given or has computed, and not about how the model was built alone."""
    names = {each.id for each in ast.walk(ast.parse(test, mode="eval")) if isinstance(each, ast.Name)}
    return bool(names - COMMON)
