"""A second forward overwrites buffers that the first one's backward needs.

## What happens

At the start of each forward DDP copies rank 0's buffers into those of the other ranks, in place. If a forward
saved a buffer for its backward (it multiplied by it, say), a second forward before that backward changes the
saved value on every rank but 0. Older torch raises "one of the variables needed for gradient computation has
been modified by an inplace operation". Since DDP hides its copy from that protection (seen in torch 2.13),
nothing is raised: the gradients are silently wrong. It takes a buffer that differs between ranks when it is
overwritten, such as a running statistic that forward replaces by a new tensor. Batch normalisation is not
affected: its backward does not use the buffers.

## How to be sure

ddpdoctor calls the model twice, bare and under DDP, and compares the buffers that autograd
saved in the first call before and after the second. It is an error where the factory's file calls the wrapped
model twice before backward; where it is not seen to, this is a note for whoever will.

## How to mend it

Put both inputs through one forward (`model(torch.cat([a, b]))`); or use a copy of the buffer
in forward (`self.scale.clone()`); or switch the copying off.

## Versions and sources

Seen with torch 2.13 CPU, where nothing is raised. On GPUs the error is still reported for torch 2.6 and later, with
BatchNorm called twice before one backward (pytorch issue 175024), for which `broadcast_buffers=False` is the remedy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    Log,
    Place,
    Record,
    Severity,
    log_pattern,
    probe,
)

from .._logs import MODIFIED, SEVERAL, beside
from .._words import listed

if TYPE_CHECKING:
    from ddpdoctor.check import ModelExam

AILMENT = Ailment("DDP505", Severity.ERROR)


@probe
def in_two_forwards(model: ModelExam) -> Iterator[Finding]:
    """Yield the name of the buffers, and the place of the second call if the factory's file has one."""
    steps = model.steps
    steps.under_ddp()
    hurt = {rank: parity.overwritten for rank, parity in enumerate(steps.parities) if parity.overwritten}
    if not hurt:
        return
    names = sorted({name for overwritten in hurt.values() for name in overwritten})
    calls = model.source.twice
    yield Finding(
        f"{'the' if calls else 'a'} second forward before backward overwrites what the first one saved: "
        + listed(names),
        tuple(
            Evidence(f"saved values of {listed(overwritten)} changed", "unchanged, as without DDP", f"rank {rank}")
            for rank, overwritten in hurt.items()
        ),
        Fix(
            "call the model once for both inputs, or let forward use a copy of the buffer",
            diff="-a, b = model(first), model(second)\n+a, b = model(torch.cat([first, second])).chunk(2)",
        ),
        place=Place(file=model.source.file, line=calls[0]) if calls else Place(),
        severity=Severity.ERROR if calls else Severity.NOTE,
    )


BUFFER = re.compile(r"(?:Float|Double|Half|BFloat16)Tensor \[\d+\]$|(?:Long|Int|Bool)Tensor")


@log_pattern(MODIFIED, context=(SEVERAL,))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Recognise a buffer: no operation made it, and it has one value a channel or whole numbers, under DDP."""
    distributed = _ranks(record, log)
    if match[2] or not distributed or not BUFFER.search(match[1]):
        return
    yield Finding(
        f"a buffer, {match[1]}, was overwritten between forward and backward: DDP copies rank 0's at each forward",
        (
            record.proof(match, "the version that forward saved"),
            Evidence(f"[{match[1]}] is the output of no operation", "", "a parameter or a buffer, not an activation"),
            *distributed,
        ),
        ONE_FORWARD,
        record.place,
    )


@log_pattern(MODIFIED, context=(SEVERAL,))
def undecided_in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Leave open which of the two it was, where the message tells neither buffers nor DDP."""
    distributed = _ranks(record, log)
    if match[2] or (distributed and BUFFER.search(match[1])):
        return
    yield Finding(
        f"a saved tensor, {match[1]}, was changed in place between forward and backward",
        (record.proof(match, "the version that forward saved"), *distributed),
        ONE_FORWARD,
        record.place,
        ambiguity=Ambiguity(
            (
                "DDP's copy of rank 0's buffers at a second forward before backward",
                "the model's own in-place operation, or optimizer.step() before backward (inplace-op-breaks-backward)",
            ),
            "CUDA_VISIBLE_DEVICES=0 torchrun --standalone --nproc_per_node=1 train.py",
        ),
    )


def _ranks(record: Record, log: Log) -> tuple[Evidence, ...]:
    if record.rank is not None:
        return (Evidence(f"rank {record.rank} said it", "", "a distributed run"),)
    return beside(record, log, SEVERAL)


ONE_FORWARD = Fix(
    "put all inputs through one forward before backward, or switch the copying of buffers off",
    diff="-a, b = model(first), model(second)\n+a, b = model(torch.cat([first, second])).chunk(2)\n"
    "or\n-DDP(model)\n+DDP(model, broadcast_buffers=False)",
)
