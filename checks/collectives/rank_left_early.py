"""A rank has come to its end while the others still wait for it.

A rank that leaves the script, by `sys.exit`, by a `return` that only it takes, or because its loop was shorter, closes
its side without a word. The others are in the middle of a step; over gloo they get "Connection closed by peer" at
best, over NCCL they wait until the time-out of the watchdog.

How to be sure: `ddpdoctor run` sees the process end (its interpreter finished, no exception) while another rank has
waited in a communication for longer than --hang-after; it compares how many steps and batches each of them did.

How to mend it: let all ranks leave together: decide on one rank and broadcast the decision, and give every rank the
same number of batches (`drop_last=True`, DistributedSampler, or Join for uneven inputs).

Holds for torch 2.2 and later; seen with torch 2.13 CPU over gloo. Source: PyTorch documentation, "Distributed
communication package", torch.distributed.algorithms.Join.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor import Card, Evidence, Finding, Fix, Severity
from ddpdoctor.check import watch
from ddpdoctor.watch.events import Doing, EpochEnded, PeerLost, Stalled, place
from ddpdoctor.watch.training import Training
from ddpdoctor.watch.verdict import Kind, kind, seen, short, table

CARD = Card("DDP740", Severity.ERROR)


@watch(Stalled)
def while_training(event: Stalled, training: Training) -> Iterator[Finding]:
    """Say who left, who waits, and how far each of them came."""
    if kind(event, training) is not Kind.LEFT:
        return
    gone = event.doing(Doing.ENDED)[0]
    waiting = event.doing(Doing.WAITING)[0]
    yield Finding(
        f"rank {gone.rank} has ended after {gone.steps} steps; rank {waiting.rank} waits for it in "
        f"{waiting.operation} at {short(waiting.site)}, after {waiting.steps}",
        (
            Evidence(f"{gone.steps} steps, {gone.batches} batches", "as many as the others", f"rank {gone.rank}"),
            *seen(event),
        ),
        Fix(
            "let all ranks leave the loop together: decide once, and tell all",
            diff="+stop = torch.tensor([int(stop_here)])\n+dist.all_reduce(stop, op=dist.ReduceOp.MAX)\n"
            "-if stop_here:\n+if stop.item():\n     break",
        ),
        place(waiting.site, rank=waiting.rank),
        table=table(event),
    )


@watch(PeerLost)
def by_those_who_lost_it(event: PeerLost, training: Training) -> Iterator[Finding]:
    """Say who came to the end of the script while another rank was still at work."""
    batches = {each.batches for each in training.by_rank(EpochEnded).values()}
    if event.first is not None or not event.ended or not event.others or len(batches) > 1:
        return  # a rank of its own error, or loaders of different lengths: told by others
    gone, lost = event.ended[0], event.others[0]
    yield Finding(
        f"rank {gone} has come to the end of the script; rank {lost.rank} was still to communicate with it",
        (
            Evidence("its program came to its end", "all ranks end together", f"rank {gone}"),
            Evidence(lost.said, "", f"rank {lost.rank}"),
        ),
        Fix(
            "let all ranks do the same steps, and end them together",
            diff="+dist.barrier()\n dist.destroy_process_group()",
        ),
        place(lost.site, rank=lost.rank),
    )
