"""What is said of a rank that has left out a step of a loop that it came to the end of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.check import Ambiguity, Evidence, Finding, Fix, Place

from ..hangs._told import noticed, seen, short, table

if TYPE_CHECKING:
    from ddpdoctor.check import PeerLost, Stalled

    from ..hangs.calls._step_passed import LeftOut
    from ..hangs.source._exits import StepSkipped


def step_left_out(found: StepSkipped, event: Stalled, fix: Fix) -> Finding:
    """Return the way past the step, or those that it can have been."""
    left, first = found.left, found.ways[0]
    only = not found.ways[1:]
    return Finding(
        f"rank {left.rank} has taken all {found.batches} batches, as rank {left.other} has, and left out a step of "
        f"the loop{f' by {first}' if only else ''}: rank {left.other} waits for it at {short(left.site)}",
        (
            *(Evidence(str(each), "a step on all ranks, or on none", f"rank {left.rank}") for each in found.ways),
            Evidence(f"{found.batches} batches in this pass", "", f"ranks {left.rank} and {left.other}"),
            *seen(event),
        ),
        fix,
        Place(file=first.file, line=first.line, rank=left.rank),
        table=table(event),
        ambiguity=None
        if only
        else Ambiguity(
            tuple(map(str, found.ways)),
            f"print the rank and the step at each of these lines: rank {left.rank} comes there alone",
        ),
    )


def one_step_ahead(found: LeftOut, event: PeerLost, fix: Fix) -> Finding:
    """Return the same of a rank that is one averaging ahead of another one, over which gloo has ended one of them."""
    first = found.ways[0]
    only = not found.ways[1:]
    return Finding(
        f"rank {found.rank} called {found.call.operation} at {short(found.call.site)} while rank {found.other} was "
        f"still at {short(found.at)}, above it in the loop, after as many forwards: rank {found.rank} has left a step "
        "out" + (f" by {first}" if only else ""),
        (
            *(Evidence(str(each), "a step on all ranks, or on none", f"rank {found.rank}") for each in found.ways),
            *noticed(event),
        ),
        fix,
        Place(file=first.file, line=first.line, rank=found.rank),
        ambiguity=None
        if only
        else Ambiguity(
            tuple(map(str, found.ways)),
            f"print the rank and the step at each of these lines: rank {found.rank} comes there alone",
        ),
    )
