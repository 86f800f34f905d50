"""A rank that ended with fewer steps, since a `continue`, a handler or a `return` has led past one."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import (
    EpochStarted,
    Evidence,
    Finding,
    Fix,
    Site,
    calls_at,
    place,
    returns_above,
    tree_of,
    ways_past,
)

from ...hangs.calls._callers import share_a_loop
from ...hangs.source._continues import continue_before

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.check import PeerLost, Training


class Continued(NamedTuple):
    """The rank that has ended, its forwards and the others' one; the way past a step, and what it is under."""

    rank: int
    forwards: int
    more: int
    site: Site
    way: str
    under: str


def left_out_by_continue(event: PeerLost, gone: int, training: Training) -> Continued | None:
    """Find it in the loop that the other rank is still in: loaders gave both as many batches, and one stepped less."""
    lost = event.others[0]
    steps = {each.rank: each.forwards for each in event.progress}
    batches = {rank: each.batches for rank, each in training.by_rank(EpochStarted).items()}
    if lost.rank is None or not {gone, lost.rank} <= steps.keys() & batches.keys():
        return None
    if batches[gone] is None or batches[gone] != batches[lost.rank] or steps[gone] > steps[lost.rank]:
        return None
    found = _behind_the_forward(event) if steps[gone] == steps[lost.rank] else _past_the_forward(event)
    return Continued(gone, steps[gone], steps[lost.rank], *found) if found else None


Way = tuple[Site, str, str]
"""Where it is, what it is, and what it is under."""


def _past_the_forward(event: PeerLost) -> Way | None:
    for at in event.stack:
        if way := continue_before(at.file, at.line, at):
            return Site(at.file, way[0], at.function), "continue", f"if {way[1]}"
    for at in event.stack:
        passed = ways_past(at.file, at.line)
        if len(passed) == 1 and "except" in (passed[0].kind.split()[0], passed[0].test.partition(" ")[0]):
            return Site(at.file, passed[0].line, at.function), passed[0].kind, passed[0].test
    for at in event.stack:
        ways = returns_above(at.file, at.line)
        if len(ways) == 1 and ways[0].test:
            return Site(at.file, ways[0].line, at.function), ways[0].kind, ways[0].test
        if ways or share_a_loop(at, at):
            break
    return None


def _behind_the_forward(event: PeerLost) -> Way | None:
    """Find it between the forward and the backward of a pass: both ranks have begun as many forwards."""
    for at in event.stack:
        way = continue_before(at.file, at.line, at)
        if way and any(each < way[0] for each in _losses(at)):
            return Site(at.file, way[0], at.function), "continue", f"if {way[1]}"
    return None


def _losses(at: Site) -> Iterator[int]:
    """Yield the lines of a function's loop that assign what a line goes backward from."""
    for call in calls_at(at.file, at.line):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "backward":
            names = {each.id for each in (call.func.value, *call.args) if isinstance(each, ast.Name)}
            for each in tree_of(at.file).of(ast.Assign):
                if any(isinstance(to, ast.Name) and to.id in names for to in each.targets):
                    line = Site(at.file, each.lineno, at.function)
                    if share_a_loop(line, at):
                        yield each.lineno


def may_be_passed(event: PeerLost) -> tuple[Evidence, ...]:
    """Return the way past the call that the other rank was in, where no loader and no forward tells who took it."""
    for at in event.stack:
        if any(each.forwards for each in event.progress):
            return ()
        if way := continue_before(at.file, at.line, at):
            said = f"`continue` at line {way[0]}, under `if {way[1]}`, leads past the call"
            return (Evidence(said, "one answer for all ranks", str(at)),)
    return ()


def past_a_step(found: Continued, event: PeerLost, fix: Fix) -> Finding:
    """Return what it led to."""
    rank, other, line = found.rank, event.others[0], found.site.line
    under = f"under `{found.under}`, " if found.under else ""
    return Finding(
        f"rank {rank} has come to the end of the script with fewer steps than rank {other.rank}: `{found.way}` at line "
        f"{line}, {under}leads past a step that the others make",
        (
            Evidence(
                f"{found.forwards} forwards, and its program came to its end",
                str(found.more) if found.more > found.forwards else "a backward after each of them, as on the others",
                f"rank {rank}",
            ),
            Evidence(found.under or found.way, "one answer for all ranks", str(found.site)),
            Evidence(other.said, "", f"rank {other.rank}"),
        ),
        fix,
        place(found.site, rank=rank),
    )
