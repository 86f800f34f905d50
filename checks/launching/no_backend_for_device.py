"""torch knows no communication backend for the accelerator of this machine.

## What happens

Without a `backend`, init_process_group chooses one by the accelerator that it finds. For Apple's GPUs (mps), and for
devices of other packages that were not imported, it knows none: "We detected accelerator mps on your machine. But we
don't know which communication backend to use for this accelerator."

## How to be sure

The message names the device. torch 2.7 and later choose gloo for mps, which then communicates on the CPU.

## How to mend it

Name the backend: gloo for CPU tensors on a Mac; that of the package (hccl, xccl, ...) once it is imported. Tensors on
mps cannot be communicated: move them to the CPU.

## Versions and sources

Holds for torch 2.6 to 2.13. Source: torch.distributed.distributed_c10d, `BackendConfig`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP432", Severity.ERROR)


@log_pattern(
    r"We detected accelerator (?P<device>\w+) on your machine\. But we don't know which communication backend to use"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the device."""
    yield Finding(
        f"torch knows no communication backend for {match['device']}",
        (record.proof(match, "a backend that is named"),),
        Fix(
            "name the backend, and communicate tensors on the CPU",
            diff='-torch.distributed.init_process_group()\n+torch.distributed.init_process_group("gloo")',
        ),
        record.place,
    )
