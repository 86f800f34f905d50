"""Only num_batches_tracked is missing or unexpected: the file is of another version of BatchNorm.

## What happens

Since torch 0.4.1 BatchNorm counts its batches in a buffer, `num_batches_tracked`. Two kinds of file differ in these
buffers alone: a file of newer torch that older torch loads, and the reverse where `_metadata` got lost (a dict
comprehension that renames keys loses it). `load_state_dict` refuses the file for them: 'Unexpected key(s) in
state_dict: "module.bn1.num_batches_tracked"'. The weights fit; the counter only matters where `momentum=None`.

## How to be sure

Every key in the message ends in `num_batches_tracked`. Any other key means another cause.

## How to mend it

Load with `strict=False` and check that all keys that it returns end in `num_batches_tracked`; or run the torch that
wrote the file. A state dict whose keys are renamed with `ddpdoctor repair` keeps its `_metadata`, and torch then
fills the counters in.

## Versions and sources

Holds for files written by torch 0.4.1 to 2.13. Source: `_NormBase._load_from_state_dict` in
torch/nn/modules/batchnorm.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Log, Record, Severity

from .._reason import Reason, on_refusal
from .._refusal import refusal

AILMENT = Ailment("DDP820", Severity.ERROR)


@on_refusal(Reason.COUNTERS)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Recognise counters, and nothing else."""
    refused = refusal(record, match, log)
    yield Finding(
        f"nothing but {len((*refused.missing, *refused.unexpected))} counters of BatchNorm differs; "
        "the weights are those of the model",
        refused.evidence,
        Fix(
            "load what fits and look at what does not",
            diff="-model.load_state_dict(state)\n"
            "+rest = model.load_state_dict(state, strict=False)\n"
            '+assert all(key.endswith("num_batches_tracked") for keys in rest for key in keys)',
        ),
        record.place,
    )
