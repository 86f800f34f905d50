"""A rank that went on to a call while another one, which is gone or lost it, was in a later forward."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ambiguity,
    Doing,
    Evidence,
    Finding,
    Fix,
    PeerLost,
    Place,
    Site,
    place,
    tests_around,
    ways_past,
)

from ...hangs._told import noticed, seen, short, table
from ...hangs.calls._callers import (
    cached,
    caller_of,
    decided_above,
    left_alike,
    left_generator,
    share_a_loop,
    tests_above,
    ways_to,
)
from ...hangs.source._continues import continue_before
from ...hangs.source._handlers import hides_an_error
from ._left_out import told_kept, told_left_generator, told_under

if TYPE_CHECKING:
    from ddpdoctor.check import Exit, Position, Stalled

    from ...hangs.calls._apart import GoneOn

FIX = Fix(
    "take collectives, and forwards of the DDP model, out of branches that differ between ranks; decide once for all",
    diff="+flag = torch.tensor([int(condition)], device=device)\n+torch.distributed.broadcast(flag, src=0)\n"
    "-if condition:\n+if flag.item():",
)
UNEVEN = Fix(
    "give every rank the same number of iterations, and leave the loop on all ranks together",
    diff="+from torch.distributed.algorithms import Join\n+with Join([model]):\n     for batch in loader:",
)
CUT = replace(
    UNEVEN,
    diff="+steps = torch.tensor(len(batches))\n+dist.all_reduce(steps, op=dist.ReduceOp.MIN)\n"
    "-for batch in batches:\n+for batch in itertools.islice(batches, int(steps)):",
)
"""Join answers in place of a rank that has ended what DDP reduces, and no collective of the script's own."""
SKIPPED = Fix(
    "let all ranks make this call: what decides there (a test, an early return, a cached result) answers alike on all, "
    "and a rank that has nothing gives zeros",
    diff="-if len(values) == 0:\n-    return 0.0\n-total = sum(values)\n+total = torch.tensor(float(sum(values)))\n"
    " dist.all_reduce(total)",
)


RAISED = Fix(
    "mend the error that the handler hides, and let it end the rank: one that goes on alone is waited for",
    diff=" except Exception as exc:\n     print(exc)\n+    raise",
)
AGREED = Fix(
    "decide together: what one rank leaves out, all leave out",
    diff="+flag = torch.tensor(float({test}), device=device)\n"
    "+torch.distributed.all_reduce(flag, op=torch.distributed.ReduceOp.MAX)\n-if {test}:\n+if flag > 0:\n     continue",
)


def uneven(operation: str) -> Fix:
    """Return how ranks come to as many passes of a loop in which one of them waits."""
    return UNEVEN if operation == "backward" or "DistributedDataParallel" in operation else CUT


def went_on(found: GoneOn, event: PeerLost) -> Finding:
    """Return that a rank left the call out, or that the other one left a loop early, as far as it is known."""
    call = found.call
    at = found.via or call.site
    if found.skipped and found.site and (skip := continue_before(found.site.file, found.site.line, at)):
        return _skipped_forward(found, event, skip[0], f"if {skip[1]}", skip[1])
    if found.skipped and (handler := _only_handler(call.site)):
        return _skipped_forward(found, event, handler.line, handler.test or handler.kind, "failed")
    if call.site and (ways := left_generator(call.site, found.via)):
        return told_left_generator(found, event, ways)
    decides = decided_above(call.site, found.site) if found.skipped and call.site and found.site else []
    if len(decides) == 1 and decides[0][0].holds:
        return told_under(found, event, *decides[0])
    if found.skipped and call.site and not decides and (keeps := cached(ways_to(call.site, found.site))):
        return told_kept(found, event, *keeps)
    tests = tests_above(call.site) if call.site and found.skipped is not False else []
    why = f"`{tests[0][0]}`, {short(tests[0][1])}" if tests else "a test, an early return, a cached result"
    handler = _only_handler(found.via) if found.skipped and not tests else None
    handler = handler or (hides_an_error(call.site) if found.skipped and not decides else None)
    return Finding(
        (
            f"rank {found.rank} called {call.operation} at {short(call.site)} after {found.forwards} forwards; rank "
            f"{found.other} has left that out, and {found.there}"
            if found.skipped
            else f"rank {found.rank} had gone on to {call.operation} at {short(call.site)} after {found.forwards} "
            f"forwards; rank {found.other} was in forward {found.others}"
        )
        + (f", at {short(found.site)}" if found.site else "")
        + (
            f": `{handler.test or handler.kind}` at line {handler.line} goes on after an error before that call"
            if handler
            else ""
        ),
        (
            Evidence(
                f"{found.forwards} forwards, then {call.operation}", "the same calls on all", f"rank {found.rank}"
            ),
            Evidence(f"{found.others} forwards", "", f"rank {found.other}"),
            *(Evidence(f"it is reached where {each}", "the same on all ranks", str(at)) for each, at in tests[:2]),
            *noticed(event),
        ),
        RAISED if handler else SKIPPED if found.skipped else UNEVEN if found.skipped is False else FIX,
        place(call.site, rank=found.rank),
        ambiguity=None
        if found.skipped is not None
        else Ambiguity(
            (
                f"rank {found.other} left {call.operation} out ({why})",
                f"rank {found.rank} left the loop earlier (break, other number of batches)",
            ),
            f"grep -n {call.operation} {call.site.file if call.site else ''}   # is it in the loop, or behind it",
        ),
    )


def left_out_by(event: Stalled) -> Finding | None:
    """Find a rank that waits in a function which another one, a forward further on, has not come through."""
    for ahead in event.doing(Doing.WAITING):
        for behind in event.doing(Doing.WAITING):
            if ahead.site is None or behind.site is None or not behind.forwards > ahead.forwards > 0:
                continue
            via = caller_of(ahead.site, behind.site)
            if via is not None and share_a_loop(via, behind.site) and left_alike(via.file, behind.site.line, via.line):
                return _left_out(event, ahead, behind)
    return None


def _left_out(event: Stalled, ahead: Position, behind: Position) -> Finding:
    site = ahead.site
    tests = tests_around(site.file, site.line) if site else []
    return Finding(
        f"rank {ahead.rank} waits in {ahead.operation} at {short(site)} after {ahead.forwards} forwards; rank "
        f"{behind.rank} has left that out, and is in forward {behind.forwards}, at {short(behind.site)}",
        (
            *(Evidence(f"it is reached where {each}", "the same on all ranks", str(site)) for each in tests[:2]),
            *seen(event),
        ),
        SKIPPED,
        place(site, rank=ahead.rank),
        table=table(event),
    )


def _only_handler(site: Site | None) -> Exit | None:
    """Return the one way past a line of a loop, where it is the handler of an exception."""
    ways = ways_past(site.file, site.line) if site else ()
    return ways[0] if len(ways) == 1 and "except" in (ways[0].kind.split()[0], ways[0].test.partition(" ")[0]) else None


def _skipped_forward(found: GoneOn, event: PeerLost, line: int, under: str, test: str) -> Finding:
    """Return that a `continue`, or a handler, before both lines has let one rank leave out a forward."""
    call, file = found.call, found.call.site.file if found.call.site else ""
    return Finding(
        f"rank {found.rank} called {call.operation} at {short(call.site)} after {found.forwards} forwards, rank "
        f"{found.other} was in forward {found.others}: `continue` at line {line}, under `{under}`, leaves a forward "
        "out on some ranks only",
        (
            Evidence(f"{found.forwards} forwards, then {call.operation}", "as many on all", f"rank {found.rank}"),
            Evidence(f"{found.others} forwards", "", f"rank {found.other}"),
            Evidence(f"{under}: continue", "the same way on all ranks", f"{file}:{line}"),
            *noticed(event),
        ),
        replace(AGREED, diff=AGREED.diff.format(test=test)),
        Place(file=file, line=line, rank=found.rank),
        ambiguity=Ambiguity(
            (
                f"rank {found.rank} has left a forward out there",
                f"rank {found.other} has left {call.operation} out, by a test around it",
            ),
            f"grep -n -B3 {call.operation} {file}   # can a test around it differ between the ranks?",
        ),
    )
