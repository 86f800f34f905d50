"""Handlers and callbacks that one rank alone registers, and that communicate when the framework calls them."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import Doing, Evidence, Finding, Fix, calls_at, last_name, one_rank_only, place, tree_of

from .._told import seen, short, table, where
from ..source._one_rank import DEFAULT, UNPAIRED, called
from ..source._rewritten import rewritten, shown

if TYPE_CHECKING:
    from ddpdoctor.check import Position, Site, Stalled

RUNS = frozenset("run fit train".split())
"""What a framework's training, which calls them, is begun by."""
OF_ANOTHER = re.compile(r"== ?[1-9]")
"""A test of the rank that is about another one than the first."""
REGISTERS = frozenset("add_event_handler attach add_callback".split())


class Registered(NamedTuple):
    """A rank that waits in a framework's training, the call that registers, and what lets one rank come there."""

    position: Position
    site: Site
    call: ast.Call
    guard: str


def registered(event: Stalled) -> Registered | None:
    """Find the one handler of a file that one rank alone registers, where the first waits in the training."""
    for position in event.doing(Doing.WAITING) if len(event.ranks) > 1 else ():
        last = position.recent[-1] if position.recent else None
        if position.rank or position.operation in UNPAIRED or (last and last.group not in {"", *DEFAULT}):
            continue
        stack = position.stack or tuple(filter(None, (position.site,)))
        for at, site in enumerate(stack):
            runs = {_name(each) for each in calls_at(site.file, site.line)} & RUNS
            if not runs or (at and not _is_called_back(stack[at - 1], position, event)):
                continue
            calls = [each for each in tree_of(site.file).of(ast.Call) if _name(each) in REGISTERS]
            found = [(each, guard) for each in calls if (guard := one_rank_only(site.file, each.lineno))]
            if len(found) == 1 and not OF_ANOTHER.search(found[0][1]):
                return Registered(position, site, *found[0])
    return None


def _is_called_back(inner: Site, position: Position, event: Stalled) -> bool:
    """Whether a framework has called the function of a line, and that of no other rank."""
    others = [each.stack for each in event.ranks if each is not position]
    theirs = {(each.file, each.function) for stack in others for each in stack}
    return inner.function not in RUNS and (inner.file, inner.function) not in theirs


def finding(found: Registered, event: Stalled) -> Finding:
    """Return what is said of it."""
    position, call = found.position, " ".join(ast.unparse(found.call).split())
    other = next(each for each in event.ranks if each is not position)
    at, site = f"{short(found.site).rpartition(':')[0]}:{found.call.lineno}", position.site or found.site
    return Finding(
        f"rank {position.rank} waits in {called(site, position.operation)} at {short(site)}, in a handler that it "
        f"alone has, by {ast.unparse(found.call.func)} at {at}, {found.guard}: rank {other.rank} {where(other)}",
        (*seen(event), Evidence(shown(found.guard), "no condition on the rank around a handler that communicates", at)),
        Fix("register it on all ranks, and print or write within it on one", diff=rewritten(found.guard, call)),
        place(site, rank=position.rank),
        table=table(event),
    )


def _name(call: ast.Call) -> str:
    return last_name(call.func)
