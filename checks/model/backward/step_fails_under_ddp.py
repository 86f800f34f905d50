"""The model trains alone and fails under DDP, for a reason that no other check knows.

## What happens

Three training steps of the bare model's kind were taken under DDP, with the options that the factory's file
passes to it, and a rank raised, died or hung, while one process takes the step. Seen for instance: sparse
buffers ("No support for sparse tensors"), which DDP cannot broadcast.

## How to be sure

The evidence has each rank's own end, those first that failed by themselves; a rank that is
still waiting is a victim.

## How to mend it

That depends on the message; `torch.distributed` is not at fault as long as `ddpdoctor check
--only collectives` passes. Buffers that DDP cannot send can be rebuilt in forward, or kept as plain
attributes.

## Versions and sources

Holds for torch 2.2 and later; the example seen with torch 2.13 CPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import KNOWN_ERRORS, Ailment, Finding, Fix, Record, Severity, log_pattern, probe

from .._logs import DDP_SENDS
from .._words import ends

if TYPE_CHECKING:
    from ddpdoctor.check import ModelExam

AILMENT = Ailment("DDP523", Severity.ERROR)


@probe
def in_a_small_job(model: ModelExam) -> Iterator[Finding]:
    """Yield every rank's end, unless a check of its own explains one of them."""
    steps = model.steps
    outcomes = steps.under_ddp()
    failed = ends(outcomes, "three steps go through, as without DDP")
    if not failed or any(steps.raised(words) for words in KNOWN_ERRORS):
        return
    yield Finding(
        f"{model.model.kind} fails under DDP on {len(failed)} of {len(outcomes)} ranks: {failed[0].seen}",
        failed,
        Fix(
            "see whether the machine or the model is the cause",
            command="ddpdoctor check --only collectives\n"
            f"ddpdoctor check --model {model.target} --batch {model.batch} --nproc 1",
        ),
    )


@log_pattern(r"No support for sparse tensors")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """DDP was sending a sparse buffer."""
    if re.search(DDP_SENDS, record.text):
        yield Finding(
            "the model has a sparse buffer, and DDP cannot broadcast it",
            (record.proof(match, "DDP wraps the model"),),
            Fix(
                "keep it as a plain attribute, or register it dense",
                diff='-self.register_buffer("name", sparse)\n+self.register_buffer("name", sparse.to_dense())',
            ),
            record.place,
        )
