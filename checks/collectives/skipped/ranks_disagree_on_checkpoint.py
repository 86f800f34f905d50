"""The ranks disagree about whether to save a checkpoint.

## What happens

Saving holds a barrier or gathers shards, so all ranks have to begin it together. Where each rank decides by its own
number (the monitored loss of its own shard, its own clock, a file that it sees or not), some save and the others
train on, and both wait until the time-out. The stack of the time-out ends in save_checkpoint and barrier.

## How to be sure

Compare the stacks of all ranks (`py-spy dump --pid PID`, or the flight recorder): some are in save_checkpoint, some
in the training step. If all are in save_checkpoint, the rank that writes is slow instead.

## How to mend it

Reduce the monitored number over the ranks before deciding (Lightning: `self.log(..., sync_dist=True)`), or let rank 0
decide and broadcast.

## Versions and sources

Holds for torch 2.2 to 2.13, and frameworks on top. Source: Lightning documentation, "LightningModule.log", sync_dist;
torch's ProcessGroupNCCL.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Severity, log_pattern

from ..timeouts._watchdog import Timeout, on_timeout, story_of

WAITING = r"\bbarrier \([^)\n]{0,299}\.py:\d+\)|line \d+ in barrier\b"
AILMENT = Ailment("DDP715", Severity.ERROR)
DOUBT = Ambiguity(
    ("the ranks decide to save by numbers of their own", "the rank that writes takes longer than the time-out"),
    "py-spy dump --pid PID   # of every rank: are all in save_checkpoint?",
)
FIX = Fix(
    "take one decision for all ranks",
    diff='-self.log("val_loss", loss)\n+self.log("val_loss", loss, sync_dist=True)',
)


@on_timeout(Timeout.SAVING)
def by_the_watchdogs_stack(record: Record, log: Log) -> Iterator[Finding]:
    """The flight recorder's stack of the collective goes through the saving of a checkpoint."""
    story = story_of(log)
    yield Finding(
        f"{story.waiting}, which is part of saving a checkpoint, and not all ranks came",
        story.evidence,
        FIX,
        record.place,
        ambiguity=DOUBT,
    )


@log_pattern(r"\bin \w*save_\w*checkpoint\w*\n(?s:.)*?(?:Timed out waiting \d+ms for|timed out in monitoredBarrier)")
def by_a_traceback(record: Record) -> Iterator[Finding]:
    """Gloo raises where it waits: the traceback goes through the saving."""
    yield Finding(
        "this rank waited in vain for the others while it saved a checkpoint",
        (record.proof(None, "all ranks save together"),),
        FIX,
        record.place,
        ambiguity=DOUBT,
    )


@log_pattern(
    r"\b_?save_\w*checkpoint\w* \([^)\n]*\.py:\d+\)|line \d+ in \w*save_\w*checkpoint",
    context=(WAITING,),
)
def by_a_stack(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """The stacks of py-spy, or of faulthandler: somebody waits in a barrier within the saving."""
    if waiting := log.before(record, WAITING):
        yield Finding(
            "a rank waits in a barrier while it saves a checkpoint",
            (waiting[0].proof(waiting[1], "all ranks save together"), record.proof(match)),
            FIX,
            record.place,
            ambiguity=DOUBT,
        )
