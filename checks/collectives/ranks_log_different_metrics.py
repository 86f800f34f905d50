"""The ranks synchronise different metrics.

## What happens

`self.log(..., sync_dist=True)` and torchmetrics call a collective for each key, in the order of the keys. A key that
only some ranks log (a class that a shard does not contain, a metric under `if`) pairs the collectives of different
metrics: wrong numbers, a hang, or, with TORCH_DISTRIBUTED_DEBUG=DETAIL, "Detected mismatch between collectives on
ranks" with logging's functions in the traceback.

## How to be sure

Print the keys of the logged dictionary on each rank, in their order. They differ between the ranks.

## How to mend it

Log the same keys in the same order on all ranks, with a neutral value (0, or NaN that you filter) where there is
none; or log without synchronising and gather once at the end of the epoch.

## Versions and sources

Holds for torch 2.2 to 2.13 with Lightning 2 and torchmetrics 1. Source: Lightning documentation, "Logging",
sync_dist; torchmetrics documentation, "Metrics in distributed data parallel mode".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity

from ._mismatch import METRICS, Mismatch, on_mismatch

AILMENT = Ailment("DDP714", Severity.ERROR)


@on_mismatch(Mismatch.METRICS)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The traceback goes through the synchronisation of metrics."""
    if frames := METRICS.search(record.text):
        yield Finding(
            "the ranks synchronise different metrics: their keys, or the order of these, differ",
            (record.proof(match, "the same keys on all ranks"), record.proof(frames)),
            Fix(
                "log the same keys on every rank, with a neutral value where there is none",
                diff="-for name in seen:\n-    self.log(name, value[name], sync_dist=True)\n"
                "+for name in all_names:\n+    self.log(name, value.get(name, 0.0), sync_dist=True)",
            ),
            record.place,
        )
