"""Several elements of a buffer share one memory location.

## What happens

A buffer made by `expand` or `broadcast_to` has fewer values in memory than elements. DDP writes rank 0's
buffers into those of the other ranks and raises "unsupported operation: more than one element of the
written-to tensor refers to a single memory location. ..." Usual causes: position ids and masks that are
expanded to the batch.

## How to be sure

`buffer.stride()` holds a 0 for a dimension larger than 1; ddpdoctor also lets DDP wrap the
model.

## How to mend it

Register a copy, `.expand(...).clone()`; or register the small tensor and expand in forward.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    EXPANDED,
    Ailment,
    Buffer,
    Evidence,
    Finding,
    Fix,
    Parameter,
    Record,
    Severity,
    is_expanded,
    log_pattern,
    probe,
)

from .._logs import DDP_SENDS
from .._words import end, listed

if TYPE_CHECKING:
    from ddpdoctor.check import ModelExam

AILMENT = Ailment("DDP519", Severity.ERROR)


@probe
def in_a_small_job(model: ModelExam) -> Iterator[Finding]:
    """Yield the name of the buffers that DDP could not write to."""
    steps = model.steps
    steps.under_ddp()
    raised = steps.raised(EXPANDED)
    tensors: tuple[Parameter | Buffer, ...] = (*model.model.buffers, *model.model.parameters)
    names = [tensor for tensor in tensors if is_expanded(tensor)]
    if raised and names:
        name, shape = names[0].name.rpartition(".")[2], ", ".join(map(str, names[0].shape))
        yield Finding(
            f"DDP cannot write to {listed(names)}: its elements share memory",
            (Evidence(end(raised[0]), "DDP wraps the model", f"rank {raised[0].rank}"),),
            Fix(
                "register a copy",
                diff=f'-self.register_buffer("{name}", values.expand({shape}))\n'
                f'+self.register_buffer("{name}", values.expand({shape}).clone())',
            ),
        )


@log_pattern(r"more than one element of the written-to tensor refers to a single memory location")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Where DDP was writing a buffer; the user's own in-place operations raise the same."""
    if re.search(DDP_SENDS, record.text):
        yield Finding(
            "DDP writes rank 0's buffers into those of the others, and a buffer was made by expand: it shares memory",
            (record.proof(match, "DDP wraps the model"),),
            Fix(
                "register a copy",
                diff='-self.register_buffer("name", values.expand(shape))\n'
                '+self.register_buffer("name", values.expand(shape).clone())',
            ),
            record.place,
        )
