"""A thread of the rank calls collectives in the group that the training uses at the same time.

## What happens

The collectives of a group are paired by their order. Two threads that use one group (a heartbeat, a logger that
averages metrics, a checkpoint that is written in the background) begin them in an order that is chance, and another one
on each rank: the all_reduce of one rank's thread meets the other rank's averaging of gradients. The shapes differ, and
all wait or gloo ends a process; or they fit, and the numbers are wrong without a word.

## How to be sure

A collective of a function that is given to `threading.Thread` (or `submit`) is under way on one rank, and has the same
number as another operation of the other rank, while both trainings wait in lines of their own.

## How to mend it

Give the thread a group of its own, made by all ranks before the thread starts:

    own = dist.new_group(backend="gloo")
    dist.all_reduce(total, group=own)   # in the thread

Or let the loop do it between two steps.

## Versions and sources

Holds for torch 2.2 to 2.13; torch 2.10 and older keep no record of what is under way over gloo, and ddpdoctor does not
tell it there. Source: torch.distributed documentation, "Groups": collectives of one group must be in one order.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Evidence, Finding, Fix, PeerLost, Severity, Stalled, place

from ..hangs._hangs import on_hang
from ..hangs._kinds import Hang
from ..hangs._losses import Loss, on_loss
from ..hangs._told import noticed, seen, short, table, where
from ..hangs.handed._callbacks import of_thread, of_threads

AILMENT = Ailment("DDP1782", Severity.ERROR)


@on_hang(Hang.THREADS)
def while_training(event: Stalled) -> Iterator[Finding]:
    """Yield the thread's call, and what it met on the other rank."""
    found = of_thread(event)
    assert found is not None  # noqa: S101 - else it would be another hang
    call, callback = found.call, found.callback
    yield Finding(
        f"{callback.name}() calls {call.operation} at {short(call.site)} in a thread, in the group that the training "
        f"uses meanwhile: rank {found.rank.rank} {where(found.rank)}, and the two calls have met each other",
        (
            Evidence(
                f"{call.operation} at {short(call.site)}, in a thread that line {callback.line} starts",
                "a group of the thread's own",
                f"rank {found.rank.rank}",
            ),
            Evidence(f"it met {found.met}", call.operation, f"rank {found.other.rank}"),
            *seen(event),
        ),
        _own(call.operation),
        place(call.site, rank=found.rank.rank),
        table=table(event),
    )


@on_loss(Loss.THREADS)
def where_it_ended_a_rank(event: PeerLost) -> Iterator[Finding]:
    """Yield it where a rank is gone without a word while a thread of each called the group of the training."""
    found = of_threads(event)
    assert found is not None  # noqa: S101 - else it would be another loss
    call, callback = found
    yield Finding(
        f"a rank is gone without an exception; on all ranks {callback.name}() called {call.operation} at "
        f"{short(call.site)} in a thread, in the group that the training uses meanwhile",
        (
            Evidence(
                f"{call.operation} at {short(call.site)}, in a thread that line {callback.line} starts",
                "a group of the thread's own",
                "all ranks",
            ),
            *noticed(event),
        ),
        _own(call.operation),
        place(call.site),
        ambiguity=Ambiguity(
            (
                "the thread's call met one of the training's on another rank, and gloo ended the process",
                "the kernel killed it, for want of memory, or it crashed in native code",
            ),
            'ddpdoctor explain LOG   # "Received data size doesn\'t match": two calls have met',
        ),
    )


def _own(operation: str) -> Fix:
    return Fix(
        "give the thread a group of its own, made by all ranks before it starts",
        diff=f"+own = dist.new_group()\n-dist.{operation}(tensor)\n+dist.{operation}(tensor, group=own)",
    )
