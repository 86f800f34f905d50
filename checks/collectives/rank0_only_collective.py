"""Rank 0 alone calls a collective.

Logging, validation and saving are often put under `if rank == 0`. A collective among them (all_reduce of a metric, a
barrier, the state dict of a sharded model), or a forward of the DDP model with buffers, is then entered by rank 0
only. NCCL pairs it with the next collective of the others, whatever that is: wrong numbers, or a hang at a later and
innocent place. In the time-outs rank 0 shows another operation than all others at the same SeqNum.

How to be sure: TORCH_DISTRIBUTED_DEBUG=DETAIL raises at the first pair that does not fit, with both stacks' lines.

How to mend it: let all ranks call it, and only print or save on rank 0; in evaluation call `model.module` where rank
0 is alone.

Holds for torch 2.2 to 2.13. Source: torch.distributed documentation, "Collective functions"; measured with torch
2.13: a barrier after a forward of rank 0 alone hangs.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor import Card, Evidence, Finding, Fix, Place, Severity
from ddpdoctor.check import sign, watch
from ddpdoctor.explain.records import Log, Record
from ddpdoctor.watch.events import Stalled, place
from ddpdoctor.watch.training import Training
from ddpdoctor.watch.verdict import Kind as Hang
from ddpdoctor.watch.verdict import guarded, kind, seen, short, table

from ._waits import STUCK
from ._watchdog import AFTERMATH, BESIDE, Kind, told

CARD = Card("DDP723", Severity.ERROR)


@sign(
    STUCK,
    beside=BESIDE,
    explains=AFTERMATH,
)
def in_logs(record: Record, log: Log) -> Iterator[Finding]:
    """Rank 0 is in another operation than all the others, who agree."""
    story = told(record, log, Kind.DIFFERENT)
    if story and story.is_rank_zero_alone:
        zero = next(wait for wait in story.waits if wait.rank == 0)
        other = next(wait for wait in story.waits if wait.rank != 0)
        yield Finding(
            f"rank 0 alone is in {zero}; the {len(story.waits) - 1} other ranks seen are in {other}",
            (zero.proof, other.proof),
            Fix(
                "let all ranks call the collective, and print or save on rank 0 only",
                diff="-if rank == 0:\n-    dist.all_reduce(metric)\n-    print(metric)\n"
                "+dist.all_reduce(metric)\n+if rank == 0:\n+    print(metric)",
            ),
            Place(rank=0, host=zero.record.node),
        )


@watch(Stalled)
def while_training(event: Stalled, training: Training) -> Iterator[Finding]:
    """The line that a rank waits in stands under a condition on the rank."""
    found = guarded(event) if kind(event, training) is Hang.GUARDED else None
    if found is None:
        return
    position, test = found
    others = next(each for each in event.ranks if each.rank != position.rank)
    yield Finding(
        f"rank {position.rank} waits in {position.operation} at {short(position.site)}, under `if {test}`: rank "
        f"{others.rank} has passed it by and waits in {others.operation} at {short(others.site)}",
        (*seen(event), Evidence(f"if {test}", "no condition on the rank around a collective", str(position.site))),
        Fix(
            "let all ranks call the collective, and print or save on rank 0 only",
            diff=f"-if {test}:\n-    {position.operation}(...)\n+{position.operation}(...)",
        ),
        place(position.site, rank=position.rank),
        table=table(event),
    )
