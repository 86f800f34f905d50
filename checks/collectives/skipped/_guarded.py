"""A rank that waits under a condition that the others do not meet."""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import (
    Evidence,
    Finding,
    Fix,
    Stalled,
    place,
    rank_given_at,
)

from ..hangs._told import seen, short, table, where
from ..hangs.calls._alone import FORWARD
from ..hangs.handed._called import by_callers, told_of
from ..hangs.handed._decorated import without_decorator
from ..hangs.handed._registered import finding, registered
from ..hangs.source._guards import Crossed, crossed, guarded
from ..hangs.source._off_by_one import off_by_one, told_as_off_by_one
from ..hangs.source._one_rank import Guarded, alone
from ..hangs.source._rewritten import shown
from ._disabled_bar import asked_bar
from ._out_of_turn import told_by_halves

FORWARDS = {FORWARD, "forward of DistributedDataParallel"}
WITHOUT_WRAPPER = Fix(
    "call the module inside of the wrapper where one rank alone calls it, or let all ranks call the model",
    diff="-loss = criterion(model(x), y)\n+loss = criterion(model.module(x), y)",
)


def under_a_condition(event: Stalled) -> Iterator[Finding]:
    if halves := told_by_halves(event):
        yield halves
        return
    if found := alone(event):
        yield _alone(found, event)
        return
    if other_call := crossed(event):
        yield _taken_for_another(other_call, event)
        return
    if handler := registered(event):
        yield finding(handler, event)
        return
    if (hidden := guarded(event)) is None:
        if earlier := off_by_one(event):
            yield told_as_off_by_one(earlier, event)
        return
    position, test, site = hidden
    others = next(each for each in event.ranks if each.rank != position.rank)
    under = "" if site == position.site else f" at {short(site)}"
    told = told_of(position.site, position.operation, f"under `if {test}`")
    fix = by_callers(position.stack, site, f"under `if {test}`") if under else None
    yield Finding(
        f"rank {position.rank} waits in {told.call} at {short(position.site)}{told.does}, under `if {test}`{under}: "
        f"rank {others.rank} has skipped it and {where(others)}",
        (*seen(event), Evidence(f"if {test}", "no condition on the rank around a collective", str(site))),
        WITHOUT_WRAPPER if position.operation in FORWARDS else fix or told.fix,
        place(position.site, rank=position.rank),
        table=table(event),
    )


def _alone(found: Guarded, event: Stalled) -> Finding:
    position = found.position
    other = next((each for each in event.ranks if each.rank != position.rank), None)
    skipped = f"rank {other.rank} has skipped it and {where(other)}" if other else "no other rank calls it"
    caller = "" if found.at == found.site else f", called at {short(found.site)}"
    does = "waits in" if found.waits else "called"
    told = told_of(found.at, found.call, found.guard)
    given = rank_given_at(found.site.file, found.site.line)
    undecorated = without_decorator(position.stack, found.site)
    fix = undecorated or (by_callers(position.stack, found.site, found.guard) if caller else None)
    bar = asked_bar(found.site, found.guard)
    skipped += f"; {bar.told}" if bar else ""
    return Finding(
        f"rank {position.rank} {does} {told.call} at {short(found.at)}{told.does}{caller}, {found.guard}: {skipped}",
        (
            *seen(event),
            Evidence(shown(found.guard), "no condition on the rank around a collective", str(found.site)),
            *([Evidence(given[0], "", f"{found.site.file}:{given[1]}")] if given else []),
            *([bar.evidence] if bar else []),
        ),
        bar.fix if bar else WITHOUT_WRAPPER if found.call in FORWARDS else fix or told.fix,
        place(found.at, rank=position.rank),
        table=table(event),
    )


def _taken_for_another(found: Crossed, event: Stalled) -> Finding:
    """Return which two calls met that do not belong together: what each rank waits in now came later."""
    call, theirs = found.call, found.theirs
    number = f"number {call.number} of its group"
    told = told_of(call.site, call.operation, f"under `if {found.test}`")
    return Finding(
        f"rank {found.rank} called {told.call} at {short(call.site)}, under `if {found.test}`: it met the "
        f"{theirs.operation} of rank {found.other} at {short(theirs.site)}, and all calls after it are off by one",
        (
            Evidence(f"{call.operation} at {short(call.site)}, {number}", "", f"rank {found.rank}"),
            Evidence(
                f"{theirs.operation} at {short(theirs.site)}, {number}",
                f"{call.operation} at {short(call.site)}",
                f"rank {found.other}",
            ),
            Evidence(f"if {found.test}", "no condition on the rank around a collective", str(call.site)),
            *seen(event),
        ),
        told.fix,
        place(call.site, rank=found.rank),
        table=table(event),
    )
