"""The ranks disagree about whether to save a checkpoint.

Saving holds a barrier or gathers shards, so all ranks have to begin it together. Where each rank decides by its own
number (the monitored loss of its own shard, its own clock, a file that it sees or not), some save and the others
train on, and both wait for ever: the stack of the time-out ends in save_checkpoint and barrier.

How to be sure: the stacks of all ranks (`py-spy dump --pid`, or the flight recorder): some are in save_checkpoint,
some in the training step. If all are in save_checkpoint, the rank that writes is slow instead.

How to mend it: reduce the monitored number over the ranks before deciding (Lightning: `self.log(...,
sync_dist=True)`), or let rank 0 decide and broadcast.

Holds for torch 2.2 to 2.13, and frameworks on top. Source: Lightning documentation, "LightningModule.log", sync_dist;
torch's ProcessGroupNCCL.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor import Card, Doubt, Finding, Fix, Severity
from ddpdoctor.check import Role, sign
from ddpdoctor.explain.records import Log, Record

from ._waits import STUCK
from ._watchdog import AFTERMATH, BESIDE, Kind, told

WAITING = r"\bbarrier \([^)\n]{0,299}\.py:\d+\)|line \d+ in barrier\b"
CARD = Card("DDP715", Severity.ERROR)
DOUBT = Doubt(
    ("the ranks decide to save by numbers of their own", "the rank that writes takes longer than the time-out"),
    "py-spy dump --pid PID   # of every rank: are all in save_checkpoint?",
)
FIX = Fix(
    "take one decision for all ranks",
    diff='-self.log("val_loss", loss)\n+self.log("val_loss", loss, sync_dist=True)',
)


@sign(STUCK, role=Role.SYMPTOM, beside=BESIDE, explains=AFTERMATH)
def by_the_watchdogs_stack(record: Record, log: Log) -> Iterator[Finding]:
    """The flight recorder's stack of the collective goes through the saving of a checkpoint."""
    if story := told(record, log, Kind.SAVING):
        yield Finding(
            f"{story.waiting}, which is part of saving a checkpoint, and not all ranks came",
            story.evidence,
            FIX,
            record.place,
            doubt=DOUBT,
        )


@sign(
    r"\bin \w*save_\w*checkpoint\w*\n(?s:.)*?(?:Timed out waiting \d+ms for|timed out in monitoredBarrier)",
    role=Role.SYMPTOM,
    explains=AFTERMATH,
)
def by_a_traceback(record: Record) -> Iterator[Finding]:
    """Gloo raises where it waits: the traceback goes through the saving."""
    yield Finding(
        "this rank waited in vain for the others while it saved a checkpoint",
        (record.proof(None, "all ranks save together"),),
        FIX,
        record.place,
        doubt=DOUBT,
    )


@sign(
    r"\b_?save_\w*checkpoint\w* \([^)\n]*\.py:\d+\)|line \d+ in \w*save_\w*checkpoint",
    role=Role.SYMPTOM,
    beside=(WAITING,),
    explains=AFTERMATH,
)
def by_a_stack(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """The stacks of py-spy, or of faulthandler: somebody waits in a barrier within the saving."""
    if waiting := log.before(record, WAITING):
        yield Finding(
            "a rank waits in a barrier while it saves a checkpoint",
            (waiting[0].proof(waiting[1], "all ranks save together"), record.proof(match)),
            FIX,
            record.place,
            doubt=DOUBT,
        )
