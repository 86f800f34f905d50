"""Batch normalisation gets one value for each channel.

## What happens

In training mode BatchNorm needs more than one value for each channel to have a variance, and raises "Expected
more than 1 value per channel when training". A global batch that is split over more ranks, or the last,
smaller batch of an epoch, gets there: 8 samples on 8 ranks are 1 sample on each.

## How to be sure

ddpdoctor takes a step with the bare model in training mode and each rank's example batch.

## How to mend it

At least two samples on each rank (`batch_size` of a DataLoader is that of one rank), and
`drop_last=True` for the training loader; or GroupNorm.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Record, Severity, log_pattern, probe

if TYPE_CHECKING:
    from ddpdoctor.check import ModelExam

AILMENT = Ailment("DDP512", Severity.ERROR)
WORDS = "Expected more than 1 value per channel when training"


@probe
def in_a_step(model: ModelExam) -> Iterator[Finding]:
    """Yield what the layer was given."""
    for rank, step in enumerate(model.steps.plain):
        if step.trouble is not None and WORDS in step.trouble.message:
            name, shape = step.normed[-1] if step.normed else ("the layer", ())
            yield Finding(
                f"{name} gets an input of shape {list(shape)}: the variance of one value for each channel is undefined",
                (Evidence(str(step.trouble), "more than one value for each channel", f"rank {rank}"),),
                Fix(
                    "train with two or more samples on each rank, and drop the last, smaller batch",
                    diff="-DataLoader(dataset, batch_size=1, sampler=sampler)\n"
                    "+DataLoader(dataset, batch_size=8, sampler=sampler, drop_last=True)",
                ),
            )
            return


@log_pattern(r"Expected more than 1 value per channel when training, got input size (?:torch\.Size\()?(\[[\d, ]*\])")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Report the shape that reached the layer."""
    yield Finding(
        f"batch normalisation got {match[1]}: one value for each channel on this rank",
        (record.proof(match, "at least two samples on each rank, also in the last batch"),),
        Fix(
            "drop the short last batch, and give each rank at least two samples",
            diff="-DataLoader(dataset, batch_size=n)\n+DataLoader(dataset, batch_size=n, drop_last=True)",
        ),
        record.place,
    )
