"""Several containers on one machine look like one host to NCCL.

## What happens

NCCL tells hosts apart by the host name and the kernel's boot id. Containers of one machine that share the name (or
the UTS namespace) count as one host, though each sees only its own GPUs: NCCL then asks NVML for a GPU of the other
container, and finds none: "nvmlDeviceGetHandleByPciBusId() failed: Not Found".

## How to be sure

`hostname` prints the same in two of the containers that run on this machine.

## How to mend it

One container for all ranks of a machine; or `NCCL_HOSTID` with another value in each container, so
that NCCL uses the network between them.

## Versions and sources

Holds for NCCL 2.5 to 2.30, torch 2.2 to 2.13, where ranks of one machine run in several containers. Source: NCCL,
getHostHash in src/misc/utils.cc; NCCL documentation, "NCCL_HOSTID".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP233", Severity.ERROR)


@log_pattern(
    r"nvmlDeviceGetHandleByPciBusId\([^)\n]{0,99}\) failed: Not Found",
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """NVML does not know a GPU that NCCL takes for one of this host."""
    yield Finding(
        "NCCL takes a GPU of another container for one of this host: the containers share a host name",
        (record.proof(match, "each container a host of its own"),),
        Fix("tell the containers apart", command="export NCCL_HOSTID=container-1   # container-2 in the next one"),
        record.place,
    )
