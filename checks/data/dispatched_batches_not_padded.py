"""Accelerate joins the batches of all ranks on the main process, and their samples have different lengths.

## What happens

For an iterable data set, `accelerator.prepare` makes a loader that reads on the main process alone, joins a batch for
each rank into one tensor and sends the parts out (`dispatch_batches=True`, the default for iterable data sets). Each
batch was padded to its own longest sample, so the batches cannot be joined: "Sizes of tensors must match except in
dimension 0. Expected size 512 but got size 431", raised in `_fetch_batches`; Accelerate's own words for it are "You
can't use batches of different size with `dispatch_batches=True`".

## How to be sure

The traceback ends in accelerate/data_loader.py, `_fetch_batches`. With one process it does not
happen, because nothing is joined.

## How to mend it

Let each rank read its own batches, `DataLoaderConfiguration(dispatch_batches=False)` (the Trainer:
`accelerator_config={"dispatch_batches": False}`): Accelerate then gives each rank its part of the stream. Or pad all
batches to one length.

## Versions and sources

Holds for Accelerate 0.28 to 1.15 with torch 2.2 to 2.13. Sources: accelerate/data_loader.py,
`DataLoaderDispatcher._fetch_batches`; accelerate/utils/operations.py, `concatenate`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP1681", Severity.ERROR)
JOINED = r"accelerate[/\\]data_loader\.py[\s\S]{0,400}in _fetch_batches"
FIX = Fix(
    "let each rank read its own batches, or pad all to one length",
    diff="-accelerator = Accelerator()\n"
    "+accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(dispatch_batches=False))\n"
    "+training_args.accelerator_config = {'dispatch_batches': False}   # of the Trainer",
)
EXPECTED = "batches of one length, or each rank reads its own"


@log_pattern(
    r"Sizes of tensors must match except in dimension 0\. Expected size (?P<expected>\d+) but got size (?P<got>\d+)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise it by the frame that joins the batches of the ranks."""
    if not re.search(JOINED, record.text):
        return
    yield Finding(
        f"the main process joins the batches of all ranks, and one is {match['expected']} long, another {match['got']}",
        (record.proof(match, EXPECTED),),
        FIX,
        record.place,
    )


@log_pattern(r"You can't use batches of different size with `dispatch_batches=True`")
def in_accelerates_words(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Accelerate has tried to join them, and says what it could not."""
    yield Finding(
        "the main process joins the batches of all ranks, and they have different sizes",
        (record.proof(match, EXPECTED),),
        FIX,
        record.place,
    )
