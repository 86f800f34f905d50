"""One rank failed of an error of its own, and the others only say that they lost it.

## What happens

A rank that raises takes its connections with it, and every other rank then fails in the communication that it is in:
"Connection closed by peer" with gloo, ncclRemoteError or a time-out with NCCL. Their tracebacks point at innocent
lines, and on a launcher's screen they often come first. Nothing is wrong there.

## How to be sure

The watch has the exceptions of all ranks of this host with the time at which each was raised. The
one that it names came first and says nothing of another rank; the others say that a peer is gone.

## How to mend it

Mend the named line, as in a program of one process. Often it is the rank's own part of the data
that it does not bear: print the sample, or run that rank's share alone.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 and gloo.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Failed,
    FailedAlone,
    Finding,
    Fix,
    PeerLost,
    Severity,
    place,
    watch,
)

from ...checkpoint.writing._made_by_one import made_by_one
from ...collectives.hangs._losses import Loss, on_loss

AILMENT = Ailment("DDP480", Severity.ERROR)


@on_loss(Loss.FAILED)
def while_training(event: PeerLost) -> Iterator[Finding]:
    """Yield the name of the rank, its error and its line; then those that followed."""
    first = event.first
    assert first is not None  # noqa: S101 - else it would be another loss
    site = first.site
    yield Finding(
        f"rank {first.rank} failed first: {first.said}",
        (
            Evidence(first.said, "", f"rank {first.rank}"),
            *(
                Evidence(each.said, "", f"rank {each.rank}, {each.time - first.time:.1f} s later")
                for each in event.others
            ),
        ),
        _mend(first, "only lost their connection to it"),
        place(site, rank=first.rank),
    )


@watch(FailedAlone)
def at_the_end(event: FailedAlone) -> Iterator[Finding]:
    """Yield the name of the rank, where the launcher was quicker than the others were to lose it."""
    first = event.first
    if not first.error or first.error == "SystemExit" or made_by_one(first):
        return
    yield Finding(
        f"rank {first.rank} alone failed: {first.said}",
        (
            Evidence(first.said, "", f"rank {first.rank}"),
            *(
                Evidence(
                    "is gone, and told of no exception",
                    "the launcher ends the others once one has failed",
                    f"rank {rank}",
                )
                for rank in event.gone
            ),
            *(Evidence("came to the end of its program", "", f"rank {rank}") for rank in event.ended),
        ),
        _mend(
            first, "did not come to it: look at what differs there: its share of the data, a branch on the rank, a file"
        ),
        place(first.site, rank=first.rank),
    )


def _mend(first: Failed, others: str) -> Fix:
    if first.error.endswith("BdbQuit"):
        return DEBUGGER
    if first.error == "EOFError" and "reading a line" in first.said:
        return ASKED
    if first.error == "StopIteration":
        return SHORT
    return Fix(f"mend this error of rank {first.rank}; the other ranks {others}")


SHORT = Fix(
    "give all ranks as many batches, or begin the iterator anew on the rank whose batches are used up",
    diff="-loader = DataLoader(dataset, batch_size=4)\n"
    "+loader = DataLoader(dataset, batch_size=4, sampler=DistributedSampler(dataset, drop_last=True), drop_last=True)",
)
ASKED = Fix(
    "take the question out: a rank has no terminal to be answered at; ask before the launch, or by an option",
    diff='-answer = input("Overwrite? ")\n+parser.add_argument("--overwrite", action="store_true")',
)


DEBUGGER = Fix(
    "take the breakpoint out: a rank has no terminal, so the debugger ends it; torch.distributed.breakpoint() waits on "
    "one rank, in a training that is started at a terminal",
    diff="-breakpoint()",
)
