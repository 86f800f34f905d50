"""A rank has come to its end while the others still wait for it.

## What happens

A rank leaves the script by `sys.exit`, by a `return` that only it takes, or because its loop was shorter. It closes
its connections and prints nothing. The others are in the middle of a step: over gloo they get "Connection closed by
peer" at best, over NCCL they wait until the time-out of the watchdog.

## How to be sure

`ddpdoctor run` sees the process end (its interpreter finished, no exception) while another rank has waited in a
communication for longer than --hang-after; it compares how many steps and batches each of them did.

## How to mend it

Let all ranks leave together: decide on one rank and broadcast the decision, and give every rank the same number of
batches (`drop_last=True`, DistributedSampler, or Join for uneven inputs).

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU over gloo. Source: PyTorch documentation, "Distributed
communication package", torch.distributed.algorithms.Join.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import (
    INTERRUPTED,
    RANKS_LINE,
    Ailment,
    Doing,
    End,
    Evidence,
    Failed,
    Finding,
    Fix,
    Left,
    Log,
    PeerLost,
    Record,
    Severity,
    Stalled,
    Training,
    ends_from,
    log_pattern,
    place,
)

from ....network.links.peers._peers import CLOSED
from ...hangs._hangs import on_hang
from ...hangs._kinds import Hang
from ...hangs._losses import Loss, on_loss
from ...hangs._lost import KERNEL
from ...hangs._told import seen, short, table
from ...hangs.reasons._left import evidence, in_words, left_by, let_it_end
from ._as_many_steps import as_many_steps, forwards_begun, same_steps
from ._continued import left_out_by_continue, may_be_passed, past_a_step
from ._dropped_send import dropped, told_dropped
from ._left_before import left_before
from ._ways_left import ways_left

AILMENT = Ailment("DDP740", Severity.ERROR)


@on_hang(Hang.LEFT)
def while_training(event: Stalled, training: Training) -> Iterator[Finding]:
    """Yield who left, who waits, and how far each of them came."""
    gone = event.doing(Doing.ENDED)[0]
    waiting = event.doing(Doing.WAITING)[0]
    counted = not event.outside
    left = left_by(gone.rank, training)
    how = in_words(left) if left else "has ended"
    yield Finding(
        f"rank {gone.rank} {how}{f' after {gone.steps} steps' if counted else ''}; rank {waiting.rank} waits for "
        f"it in {waiting.operation} at {short(waiting.site)}{f', after {waiting.steps}' if counted else ''}",
        (
            *((evidence(left),) if left else ()),
            Evidence(f"{gone.steps} steps, {gone.batches} batches", "as many as the others", f"rank {gone.rank}")
            if counted
            else Evidence("its process is no more", "all ranks end together", f"rank {gone.rank}"),
            *seen(event),
        ),
        _fix(left, TOGETHER if counted else ITS_OUTPUT),
        place(left.site, rank=gone.rank) if left else place(waiting.site, rank=waiting.rank),
        table=table(event),
    )


@on_loss(Loss.LEFT)
def by_those_who_lost_it(event: PeerLost, training: Training) -> Iterator[Finding]:
    """Yield who came to the end of the script while another rank was still at work."""
    yield _lost(event, event.ended[0], event.others[0], training)


@log_pattern(RANKS_LINE, context=(CLOSED,))
def over_several_hosts(record: Record, log: Log) -> Iterator[Finding]:
    """Yield whose program came to its end on one host, where a rank of another lost it, by the lines of all hosts."""
    found = list(log.find(RANKS_LINE))
    ends = ends_from(match[1] for _, match in found)
    lost_it = ((each, match) for each, match in log.find(CLOSED) if each.rank is not None)
    broken = [(each, match) for each, match in lost_it if each.rank not in ends or not ends[each.rank].whole]
    gone = next((each for _, each in sorted(ends.items()) if each.whole), None)
    if found[0][0] is not record or gone is None or not broken:
        return
    other, said = broken[0]
    lost = ends.get(other.rank or 0)  # none of one whose log ends before that of its host
    apart = f"rank {gone.rank} had loaded {_names(gone)}, and rank {lost.rank} {_names(lost)}" if lost else ""
    differ = lost is not None and bool(gone.loaded) != bool(lost.loaded)
    left = gone.left
    how = in_words(left) if left else "has come to the end of its program"
    yield Finding(
        f"rank {gone.rank} {how} on {gone.host}, after {gone.steps} steps; rank {other.rank}"
        + (f" on {lost.host}" if lost else "")
        + " was still to communicate with it"
        + (f", after {lost.steps}" if lost else "")
        + (f"; {apart}" if differ else ""),
        (
            *((evidence(left),) if left else ()),
            Evidence(f"{gone.steps} steps, to its end", "all ranks end together", f"rank {gone.rank}, {gone.host}"),
            other.proof(said),
            *(
                Evidence(f"loaded {_names(each)}", "the same file on all ranks", f"rank {each.rank}, {each.host}")
                for each in ((gone, lost) if differ and lost else ())
            ),
        ),
        SAME_CHECKPOINT if differ else _fix(left, TOGETHER),
        place(left.site, rank=gone.rank) if left else other.place,
    )


def _names(end: End) -> str:
    return ", ".join(end.loaded) or "no file"


SAME_CHECKPOINT = Fix(
    "resume on all ranks or on none: put checkpoints in a folder that all hosts share, or have rank 0 read and tell",
    diff="+found = [torch.load(path) if rank == 0 and os.path.exists(path) else None]\n"
    "+dist.broadcast_object_list(found, src=0)\n"
    "-if os.path.exists(path):\n-    saved = torch.load(path)\n+if found[0] is not None:\n+    saved = found[0]",
    command="ddpdoctor check --save-folder FOLDER   # on each host: tells whether all of them share it",
)


def _lost(event: PeerLost, gone: int, lost: Failed, training: Training) -> Finding:
    """Return how a rank came to its end before its time, as far as it is known."""
    if message := dropped(event, gone, lost.rank):
        return told_dropped(message, gone, lost)
    left = left_by(gone, training)
    if left is None and (skips := left_out_by_continue(event, gone, training)):
        return past_a_step(skips, event, same_steps(training))
    if left is None and (found := left_before(event, gone, lost)):
        return found
    how = in_words(left) if left else "has come to the end of the script"
    return Finding(
        f"rank {gone} {how}; rank {lost.rank} was still to communicate with it",
        (
            evidence(left)
            if left
            else Evidence("its program came to its end", "all ranks end together", f"rank {gone}"),
            *forwards_begun(event, gone, lost.rank),
            *(() if left else may_be_passed(event)),
            Evidence(lost.said, "", f"rank {lost.rank}"),
        ),
        _fix(left, as_many_steps(event, gone, lost.rank, training)),
        place(left.site, rank=gone) if left else place(lost.site, rank=lost.rank),
        ambiguity=None if left else ways_left(event, gone, training),
    )


def _fix(left: Left | None, otherwise: Fix) -> Fix:
    if left is None:
        return otherwise
    if left.handled:
        return let_it_end(left)
    return INTERRUPT if left.by == INTERRUPTED else TOGETHER


TOGETHER = Fix(
    "let all ranks leave the loop together: decide once, and tell all",
    diff="+stop = torch.tensor([int(stop_here)])\n+dist.all_reduce(stop, op=dist.ReduceOp.MAX)\n"
    "-if stop_here:\n+if stop.item():\n     break",
)
ITS_OUTPUT = Fix(
    "read the end of its output: an exception, a `return`, or nothing where the kernel has killed it; let all ranks "
    "end together",
    command=KERNEL,
)


INTERRUPT = Fix(
    "send the signal to the launcher, which ends all ranks; find out who sent it to one of them",
    command="kill -INT PID_OF_TORCHRUN",
)
