"""What is said of a call that has met one half of "one rank first", so that the other half waits in vain."""

from __future__ import annotations

from linecache import getline
from typing import TYPE_CHECKING

from ddpdoctor.check import Evidence, Finding, Fix, place

from ..hangs._told import seen, short, table, where
from ..hangs.turns._first import in_turn
from ..hangs.turns._halves import out_of_turn, passed_half
from ..hangs.turns._missed_half import missed_half

if TYPE_CHECKING:
    from ddpdoctor.check import Stalled

    from ..hangs.turns._first import InTurn
    from ..hangs.turns._halves import OutOfTurn, Passed
    from ..hangs.turns._missed_half import Missed


def told_by_halves(event: Stalled) -> Finding | None:
    """Return why a rank waits in one half in vain: the other half was met by another call, or never called."""
    if turn := out_of_turn(event):
        return _out_of_turn(turn, event)
    if half := passed_half(event):
        return _passed(half, event)
    if found := in_turn(event):
        return _in_turn(found, event)
    missed = missed_half(event)
    return _missed(missed, event) if missed is not None else None


def _in_turn(found: InTurn, event: Stalled) -> Finding:
    """Return that a rank meets the others in a block which they enter when it is out of it."""
    one, other = found.one, found.other
    head = getline(found.door.file, found.door.line).strip()
    call = getline(found.at.file, found.at.line).strip()
    return Finding(
        f"rank {one.rank} waits in {one.operation} at {short(found.at)}, within `{head.rstrip(':')}`: rank "
        f"{other.rank} enters the block when rank {one.rank} is out of it, and {where(other)}",
        (*seen(event), Evidence(head, "nothing in the block in which all ranks meet", str(found.door))),
        Fix("call it behind the block, where all ranks come at once", diff=f" {head}\n-    {call}\n+{call}"),
        place(found.at, rank=one.rank),
        table=table(event),
    )


def _out_of_turn(found: OutOfTurn, event: Stalled) -> Finding:
    """Return the call that has met one half of "one rank first", whose other half then waits."""
    call, theirs, name = found.call, found.theirs, found.call.operation
    under = f", {found.under}" if found.under else ""
    number = f"number {call.number} of its group"
    return Finding(
        f"rank {found.rank} called {name} at {short(call.site)}{under}: it met the {theirs.operation} of rank "
        f"{found.other} at {short(theirs.site)}, which is to meet the one at {short(found.half)}, where rank "
        f"{found.rank} waits in vain",
        (
            Evidence(f"{name} at {short(call.site)}, {number}", "", f"rank {found.rank}"),
            Evidence(f"{theirs.operation} at {short(theirs.site)}, {number}", "", f"rank {found.other}"),
            *seen(event),
        ),
        Fix(
            f"take the {name} at {short(call.site)} out: {found.half.function} lets the ranks wait for each other by "
            "itself",
            diff=f"-{getline(call.site.file, call.site.line).strip()}" if call.site else "",
        ),
        place(call.site, rank=found.rank),
        table=table(event),
    )


def _passed(found: Passed, event: Stalled) -> Finding:
    """Return that one half has been met before its turn, where it is seen from outside."""
    one, other, name = found.one, found.other, found.one.operation
    by = f"the {name} at {short(found.met)}" if found.met else f"another {name} of rank {one.rank}"
    return Finding(
        f"rank {one.rank} waits in {name} at {short(one.site)}, which is to meet the one at {short(found.half)}: rank "
        f"{other.rank} is past that, and {where(other)}, so that {by} has met it before",
        seen(event),
        Fix(
            f"take the {name} out that is not of the pair: {found.half.function} lets the ranks wait for each other "
            "by itself",
            diff=f"-{getline(found.met.file, found.met.line).strip()}" if found.met else "",
        ),
        place(found.met or one.site, rank=one.rank),
        table=table(event),
    )


def _missed(found: Missed, event: Stalled) -> Finding:
    one, other, name = found.one, found.other, found.one.operation
    under = f", reached only {found.under}" if found.under else ""
    return Finding(
        f"rank {one.rank} waits in {name} at {short(one.site)}, which is to meet that at {short(found.half)}{under}; "
        f"rank {other.rank} has called that {found.others} of {found.calls} times, and {where(other)}",
        (
            Evidence(f"{found.calls} times {name} at {short(one.site)}", "", f"rank {one.rank}"),
            Evidence(f"{found.others} times at {short(found.half)}", str(found.calls), f"rank {other.rank}"),
            *seen(event),
        ),
        Fix(
            "put both halves under the same condition, but for the rank",
            diff=f"-{getline(found.half.file, found.half.line - 1).strip()}\n"
            "+if rank == 0:   # and whatever else the other half asks\n     dist.barrier()",
        ),
        place(found.half, rank=other.rank),
        table=table(event),
    )
