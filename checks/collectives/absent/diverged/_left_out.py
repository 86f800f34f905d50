"""Why a rank has left a call out that another one made: a test, a result that was kept, a generator left early."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from ddpdoctor.check import Ambiguity, Evidence, Finding, Fix, Place, Site, place

from ...hangs._told import noticed, short

if TYPE_CHECKING:
    from ddpdoctor.check import Exit, Guard, PeerLost

    from ...hangs.calls._apart import GoneOn

TOGETHER = Fix(
    "decide together: where the test holds on one rank, all make the call",
    diff="+flag = torch.tensor(float({test}), device=device)\n"
    "+torch.distributed.all_reduce(flag, op=torch.distributed.ReduceOp.MAX)\n-if {test}:\n+if flag > 0:",
)
UNCACHED = Fix(
    "call the collective each time, on all ranks; keep only what a rank computes by itself",
    diff="-@{decorator}\n def {function}(...):",
)


def told_under(found: GoneOn, event: PeerLost, guard: Guard, at: Site) -> Finding:
    """Return the one test that has led a rank to a call which another one, in the same loop, has left out."""
    call, test = found.call, " ".join(ast.unparse(guard.test).split())
    where = Site(at.file, guard.test.lineno, at.function)
    return Finding(
        f"rank {found.rank} called {call.operation} at {short(call.site)} after {found.forwards} forwards, "
        f"{guard.words} at {short(where)}: rank {found.other} has left that out, and {found.there}"
        + (f", at {short(found.site)}" if found.site else ""),
        (
            *_calls(found),
            Evidence(f"it is reached {guard.words}", "the same answer on all ranks", str(where)),
            *noticed(event),
        ),
        replace(TOGETHER, diff=TOGETHER.diff.format(test=test)),
        place(where, rank=found.rank),
    )


def told_kept(found: GoneOn, event: PeerLost, decorator: str, at: Site) -> Finding:
    """Return the function whose result was kept on one rank, which then did not come to the call in it."""
    call = found.call
    return Finding(
        f"rank {found.rank} called {call.operation} at {short(call.site)} after {found.forwards} forwards; rank "
        f"{found.other} has left that out, and {found.there}: {at.function}() keeps its results, by "
        f"`@{decorator}` at {short(at)}, and is not run where a rank has asked for one before",
        (
            *_calls(found),
            Evidence(f"@{decorator}", "no collective in what it keeps", str(at)),
            *noticed(event),
        ),
        replace(UNCACHED, diff=UNCACHED.diff.format(decorator=decorator, function=at.function)),
        place(at, rank=found.rank),
    )


def told_left_generator(found: GoneOn, event: PeerLost, ways: tuple[Exit, ...]) -> Finding:
    """Return by which way one rank has left the loop through a generator, which calls what comes behind its items."""
    call, only = found.call, ways[0]
    name = call.site.function if call.site else ""
    how = f" by {only}" if len(ways) == 1 else " early"
    return Finding(
        f"rank {found.rank} called {call.operation} at {short(call.site)}, behind all that {name}() yields, after "
        f"{found.forwards} forwards; rank {found.other} has left the loop through {name}(), at {short(found.via)}"
        f"{how}, and {found.there}",
        (
            *_calls(found),
            *(Evidence(str(each), "all ranks leave the loop in the same step", each.file) for each in ways),
            *noticed(event),
        ),
        Fix(
            f"call {call.operation} behind the loop, where all ranks come; or let all leave the loop together",
            diff=f"-    {call.operation}(...)   # in {name}(): who leaves the loop does not come here\n"
            f" for item in {name}(...):\n     ...\n+{call.operation}(...)",
        ),
        Place(file=only.file, line=only.line, rank=found.other),
        ambiguity=None
        if len(ways) == 1
        else Ambiguity(tuple(map(str, ways)), "print the rank and the step at each of these lines"),
    )


def _calls(found: GoneOn) -> tuple[Evidence, Evidence]:
    """Return how far each of the two ranks has come, and what the one called that the other one left out."""
    then = f"{found.forwards} forwards, then {found.call.operation}"
    return (
        Evidence(then, "the same calls on all", f"rank {found.rank}"),
        Evidence(f"{found.others} forwards", "", f"rank {found.other}"),
    )
