"""Ranks that have made as many forwards, and have averaged gradients other numbers of times: by their no_sync()."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.check import Evidence, Finding, Fix, Site, place, tree_of

from ...hangs._told import seen, short, table

if TYPE_CHECKING:
    from ddpdoctor.check import Position, Stalled


def no_sync_in(loop: Site) -> Site | None:
    """Return the line of a loop that enters no_sync(), where there is one."""
    tree = tree_of(loop.file)
    lines = [
        each.lineno
        for each in tree.of(ast.Call)
        if isinstance(each.func, ast.Attribute)
        and each.func.attr == "no_sync"
        and any(isinstance(up, (ast.For, ast.While)) and up.lineno == loop.line for up in tree.above(each))
    ]
    return Site(loop.file, lines[0], "") if lines else None


def unlike_accumulation(ahead: Position, behind: Position, unsynced: Site, event: Stalled) -> Finding:
    """Return that ranks with as many forwards have averaged other numbers of times: by what no_sync() hangs on."""
    return Finding(
        f"rank {behind.rank} waits in {behind.operation} at {short(behind.site)}, and rank {ahead.rank} has gone on to "
        f"{ahead.operation} at {short(ahead.site)}, each after {ahead.forwards} forwards: they enter no_sync() at "
        f"{short(unsynced)} in different steps, so that one averages gradients more often",
        (
            *(Evidence(f"{each.steps} steps", "as many on all", f"rank {each.rank}") for each in (ahead, behind)),
            *seen(event),
        ),
        Fix(
            "let all ranks accumulate over the same number of batches: a number, not one that a rank's own data give",
            diff="-accumulate = len(own_batches) // 4\n+accumulate = 4",
        ),
        place(unsynced, rank=ahead.rank),
        table=table(event),
    )
