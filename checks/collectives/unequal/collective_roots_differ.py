"""The ranks name different roots of one broadcast, gather, reduce or scatter.

## What happens

`src` and `dst` name the one rank that gives, or gets: each rank has to name the same. Where each names itself
(`dist.gather(x, parts, dst=rank)`), or takes the number on its host for it (`src=local_rank`), each waits for messages
that nobody sends. A broadcast of which each rank is the source ends at once and changes nothing.

## How to be sure

Print `src` or `dst` on all ranks. `ddpdoctor run` compares them when the ranks wait.

## How to mend it

Name one rank: `dst=0`. In a group of some ranks it is the global number of one of its members:
`dist.get_global_rank(group, 0)`.

## Versions and sources

Holds for torch 2.2 to 2.15. Source: torch.distributed.distributed_c10d, `gather`, `reduce`, `broadcast`, `scatter`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Severity, Stalled, place

from ..hangs._hangs import Hang, on_hang
from ..hangs._pairs import root_of
from ..hangs._told import seen, short, table
from ..hangs.calls._compared import first_mismatch

AILMENT = Ailment("DDP709", Severity.ERROR)


@on_hang(Hang.ROOTS)
def while_training(event: Stalled) -> Iterator[Finding]:
    """Yield the call, and the root that each of two ranks names."""
    if pair := first_mismatch(event.ranks):
        (rank, ours), (other, theirs) = pair
        word = "src" if ours.operation in {"broadcast", "scatter"} else "dst"
        at = "" if ours.site == theirs.site else f" at {short(theirs.site)}"
        yield Finding(
            f"{ours.operation} at {short(ours.site)}: rank {rank} names rank {root_of(ours)} of its group for {word}, "
            f"rank {other} names rank {root_of(theirs)}{at}",
            (
                Evidence(f"{word} is rank {root_of(ours)}", "one rank, the same on all ranks", f"rank {rank}"),
                Evidence(f"{word} is rank {root_of(theirs)}", "", f"rank {other}"),
                *seen(event),
            ),
            Fix(
                "name the same rank on all ranks",
                diff=f"-dist.{ours.operation}(..., {word}=rank)\n+dist.{ours.operation}(..., {word}=0)",
            ),
            place(ours.site),
            table=table(event),
        )
