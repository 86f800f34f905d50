"""Gradients have another memory layout than DDP's buckets: a warning that can be ignored.

## What happens

DDP lays its buckets out as the parameters are laid out when it wraps the model. A gradient with other strides
(typical of 1x1 convolutions under cuDNN, of `channels_last`, and of what `torch.compile` or autocast produce) is
copied into the bucket instead of being a view of it, and DDP says once: "Grad strides do not match bucket view
strides. This may indicate grad was not created according to the gradient layout contract, or that the param's strides
changed since DDP was constructed. This is not an error, but may impair performance." The averages are right; the copy
costs little.

## How to be sure

The sizes in the next two lines are equal, and the training goes on. The error that looks like it,
"appears not to match strides of the same param in process 0", is another one: strides-differ.

## How to mend it

Where the warning disturbs: convert the model to its memory format before DDP wraps it, and make the
output of a permuted operation contiguous.

## Versions and sources

Holds for torch 1.7 to 2.13. Source: torch/csrc/distributed/c10d/reducer.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Role, Severity, log_pattern

AILMENT = Ailment("DDP525", Severity.NOTE)


@log_pattern(r"Grad strides do not match bucket view strides", role=Role.HARMLESS)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Report that nothing is wrong."""
    yield Finding(
        "gradients are laid out in memory otherwise than DDP's buckets: the results are right",
        (record.proof(match, "a warning, once, and a training that goes on"),),
        Fix(
            "nothing needs to be done; to be rid of it, choose the memory format before wrapping",
            diff="+model = model.to(memory_format=torch.contiguous_format)\n model = DDP(model)",
        ),
        record.place,
    )
