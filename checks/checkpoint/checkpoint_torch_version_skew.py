"""Only num_batches_tracked is missing or unexpected: the file is of another version of BatchNorm.

Since torch 0.4.1 BatchNorm counts its batches in a buffer, `num_batches_tracked`. A file of newer torch loaded by
older, or the reverse where `_metadata` got lost on the way (a dict comprehension that renames keys loses it), differs
in these buffers alone, and `load_state_dict` refuses the file for them: 'Unexpected key(s) in state_dict:
"module.bn1.num_batches_tracked"'. The weights fit; the counter only matters where `momentum=None`.

How to be sure: every key in the message ends in `num_batches_tracked`. Any other key means another ailment.

How to mend it: load with `strict=False` and look at what it returns; or run the torch that wrote the file. A state
dict whose keys are renamed with `ddpdoctor repair` keeps its `_metadata`, and torch then fills the counters in.

Holds for files written by torch 0.4.1 to 2.13. Source: `_NormBase._load_from_state_dict` in
torch/nn/modules/batchnorm.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor import Card, Finding, Fix, Severity
from ddpdoctor.check import sign
from ddpdoctor.explain.records import Log, Record

from ._reason import Reason, reason
from ._refusal import LOUD, PARTS, refusal

CARD = Card("DDP820", Severity.ERROR)


@sign(LOUD, beside=PARTS)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Recognise counters, and nothing else."""
    refused = refusal(record, match, log)
    if reason(refused)[0] is Reason.COUNTERS:
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
