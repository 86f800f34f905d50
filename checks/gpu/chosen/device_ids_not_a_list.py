"""device_ids is a number where a list is wanted.

## What happens

`DistributedDataParallel(model, device_ids=local_rank)` and `DataParallel(model, device_ids=0)` raise a TypeError on
every rank ("object of type 'int' has no len()", "'int' object is not iterable"): `device_ids` is a list, also of one
device.

## How to be sure

The traceback ends in the constructor, in torch/nn/parallel.

## How to mend it

`DistributedDataParallel(model, device_ids=[local_rank])`; on the CPU leave it out.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. Source: torch/nn/parallel/distributed.py and data_parallel.py,
the constructors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP245", Severity.ERROR)


@log_pattern(
    r"nn[/\\]parallel[/\\](?P<module>distributed|data_parallel)\.py\", line \d+, in __init__\n"
    r"(?:[^\n]*device_ids[^\n]*\n)?(?:[ ~^]*\n)?(?:[^\n]*listcomp[^\n]*\n[^\n]*\n)?"
    r"TypeError: (?:object of type '(?P<kind>int|torch\.device|str)' has no len\(\)"
    r"|'(?P<type>int|torch\.device)' object "
    r"is not iterable)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Find the constructor below the error."""
    kind = match["kind"] or match["type"]
    wrapper = "DistributedDataParallel" if match["module"] == "distributed" else "DataParallel"
    yield Finding(
        f"{wrapper} is given device_ids that is no list, but of type {kind}",
        (record.proof(None, "a list, also of one device"),),
        Fix(
            "make it a list",
            diff=f"-model = {wrapper}(model, device_ids=local_rank)\n"
            f"+model = {wrapper}(model, device_ids=[local_rank])",
        ),
        record.place,
    )
