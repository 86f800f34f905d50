"""A pipeline schedule is given fewer rows than it has microbatches.

## What happens

A schedule of torch.distributed.pipelining cuts each batch along its first dimension into `n_microbatches` parts. A
batch of fewer rows gives fewer parts: "Expecting 8 arg_mbs but got 6", "Tensor size 6 is smaller than num_chunks". It
comes in the first step, or with the last, smaller batch of a pass; the other stages wait for what this one never sends.

## How to be sure

The message has both numbers.

## How to mend it

Leave the last, smaller batch out (`DataLoader(..., drop_last=True)`), and give the loader a batch size that the number
of microbatches divides.

## Versions and sources

Seen with torch 2.13. Source: torch/distributed/pipelining/schedules.py, `_check_inputs`; microbatch.py,
`split_args_kwargs_into_chunks`. Holds for torch 2.4 and later.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP1596", Severity.ERROR)


@log_pattern(
    r"Expecting (?P<wanted>\d+) (?:arg_mbs|kwarg_mbs|target_mbs) but got (?P<got>\d+)"
    r"|Tensor size (?P<rows>\d+) is smaller than num_chunks"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Tell both numbers, where they are known."""
    rows, wanted = match["got"] or match["rows"], match["wanted"] or "n_microbatches"
    parts = f"{wanted} microbatches" if match["wanted"] else "more microbatches than that"
    yield Finding(
        f"the pipeline schedule was given a batch of {rows} rows, and has {parts}",
        (record.proof(match, f"at least {wanted} rows"),),
        Fix(
            "leave out the last, smaller batch, or have fewer microbatches",
            diff="-loader = DataLoader(dataset, batch_size=size)\n"
            "+loader = DataLoader(dataset, batch_size=size, drop_last=True)\n"
            f"-schedule = ScheduleGPipe(stage, n_microbatches={wanted})\n"
            "+schedule = ScheduleGPipe(stage, n_microbatches=size)   # at most the rows of a batch",
        ),
        record.place,
    )
