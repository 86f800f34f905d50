"""NCCL uses a function that this host's driver does not offer.

## What happens

A newer NCCL uses NVLink SHARP multicast (file transport/nvls.cc) and memory of the cuMem functions. Where the driver,
the fabric manager or a virtual machine does not support them though it says so, the call fails at the first
collective: "transport/nvls.cc:254 NCCL WARN Cuda failure 1 'invalid argument'", "Failed to bind NVLink SHARP (NVLS)
Multicast memory", then "unhandled cuda error". Plain CUDA programs run all the same.

## How to be sure

With `NCCL_NVLS_ENABLE=0` (and `NCCL_CUMEM_ENABLE=0`) the same program runs.

## How to mend it

A driver as new as the CUDA version that NCCL was built with, and nvidia-fabricmanager of the driver's
exact version, running; until then the two variables.

## Versions and sources

Holds for NCCL 2.17 and later, torch 2.2 to 2.13, on GPUs with NVSwitch (nvls.cc), and on all for cuMem. Source: NCCL,
src/transport/nvls.cc; NCCL documentation, "NCCL_NVLS_ENABLE" and "NCCL_CUMEM_ENABLE"; of containers,
pie-project/pie#500.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP118", Severity.ERROR)
OLD = "the driver is older than this NCCL needs"
FABRIC = "nvidia-fabricmanager does not run, or is of another version than the driver"
RESTARTED = "nvidia-fabricmanager was started anew, and the GPUs were not reset since (a reboot does so)"
CLOSED = "the container does not show /dev/nvidia-caps, without which CUDA refuses multicast memory"
STATE = (
    "systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -A3 -w Fabric   # State: Completed, Status: Success\n"
    "ls -d /dev/nvidia-caps   # in the container"
)


@log_pattern(
    r"transport/nvls\.cc:\d+ NCCL WARN Cuda failure (?:(?P<code>\d+) )?'(?P<text>(?!out of memory)[^'\n]+)'"
    r"|Failed to bind NVLink SHARP \(NVLS\) Multicast memory(?![^\n]*Proceeding without)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The file that failed says which feature it is."""
    said = match["text"] or "Multicast memory cannot be bound"
    fabric = "Fabric Manager or NVSwitches" in record.text
    yield Finding(
        f"NCCL's NVLink multicast (NVLS) does not work on this machine: {said}"
        if fabric
        else f"NCCL's NVLink multicast (NVLS) does not work with this driver: {said}",
        (record.proof(match, "the driver supports what NCCL asks for"),),
        Fix(
            "restart the fabric manager and reset the GPUs, and until then leave the feature out",
            command="export NCCL_NVLS_ENABLE=0\n"
            "sudo systemctl restart nvidia-fabricmanager && sudo nvidia-smi -r   # while nothing runs on the GPUs",
        )
        if fabric
        else Fix("leave the feature out until driver and fabric are right", command="export NCCL_NVLS_ENABLE=0"),
        record.place,
        ambiguity=Ambiguity(
            (OLD, FABRIC, RESTARTED, CLOSED) if match["text"] else (FABRIC, RESTARTED, OLD, CLOSED), STATE
        ),
    )


@log_pattern(
    r"(?:cudawrap|allocator|alloc\.h)\S{0,99}:\d+ NCCL WARN Cuda failure (?:\d+ )?'(?P<text>operation not supported)'"
    r"|Cuda failure (?:\d+ )?'(?P<missing>API call is not supported in the installed CUDA driver)'",
)
def of_its_allocator(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The cuMem functions are missing from the driver, or closed in a container."""
    yield Finding(
        f"NCCL's cuMem functions do not work with this driver: {match['text'] or match['missing']}",
        (record.proof(match, "the driver supports what NCCL asks for"),),
        Fix("leave them out until the driver is newer", command="export NCCL_CUMEM_ENABLE=0"),
        record.place,
    )
