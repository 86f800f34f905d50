"""Handlers and callbacks that one rank alone registers, and that communicate when the framework calls them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import Doing, Evidence, Finding, Fix, calls_at, one_rank_only, place, tree_of

from .._told import seen, short, table, where
from ._one_rank import DEFAULT, UNPAIRED, rewritten, shown

if TYPE_CHECKING:
    from ddpdoctor.check import Position, Site, Stalled

RUNS = frozenset("run fit train".split())
"""What a framework's training, which calls them, is begun by."""
REGISTERS = frozenset("add_event_handler attach add_callback".split())


class Registered(NamedTuple):
    """A rank that waits within the framework's training, the call that registers, and what lets one rank come there."""

    position: Position
    site: Site
    call: ast.Call
    guard: str


def registered(event: Stalled) -> Registered | None:
    """Find the one handler of a file that one rank alone registers, where a rank waits in no line of the user's own."""
    for position in event.doing(Doing.WAITING) if len(event.ranks) > 1 else ():
        site, last = position.site, position.recent[-1] if position.recent else None
        if site is None or position.operation in UNPAIRED or (last and last.group not in {"", *DEFAULT}):
            continue
        if {_name(each) for each in calls_at(site.file, site.line)} & RUNS:
            calls = [each for each in tree_of(site.file).of(ast.Call) if _name(each) in REGISTERS]
            found = [(each, guard) for each in calls if (guard := one_rank_only(site.file, each.lineno))]
            if len(found) == 1:
                return Registered(position, site, *found[0])
    return None


def finding(found: Registered, event: Stalled) -> Finding:
    """Return what is said of it."""
    position, call = found.position, " ".join(ast.unparse(found.call).split())
    other = next(each for each in event.ranks if each is not position)
    at = f"{short(found.site).rpartition(':')[0]}:{found.call.lineno}"
    return Finding(
        f"rank {position.rank} waits in {position.operation} at {short(found.site)}, in a handler that it alone has, "
        f"by {ast.unparse(found.call.func)} at {at}, {found.guard}: rank {other.rank} {where(other)}",
        (*seen(event), Evidence(shown(found.guard), "no condition on the rank around a handler that communicates", at)),
        Fix("register it on all ranks, and print or write within it on one", diff=rewritten(found.guard, call)),
        place(found.site, rank=position.rank),
        table=table(event),
    )


def _name(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]
