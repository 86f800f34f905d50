"""CUDA cannot start because the NVSwitches of this machine are not set up (802).

## What happens

On machines with NVSwitch (HGX and DGX of A100, H100, B200) CUDA starts only after nvidia-fabricmanager has joined the
GPUs: until then each call fails with "Cuda failure 802 'system not yet initialized'", "Error 802: system not yet
initialized", "CUDA_ERROR_SYSTEM_NOT_READY". torch.cuda.is_available() is False, although nvidia-smi lists the GPUs.

## How to be sure

`systemctl status nvidia-fabricmanager`, and its version next to the driver's: they must be equal to the last digit.
`nvidia-smi -q` says under "Fabric" whether each GPU has completed.

## How to mend it

Install the nvidia-fabricmanager of the driver's exact version, enable it so that it survives a reboot, and start it.
In a virtual machine the host has to do that. With confidential computing, set the GPUs ready:
`nvidia-smi conf-compute -srs 1`.

## Versions and sources

Holds for torch 2.2 to 2.13, on machines with NVSwitch. Source: CUDA Runtime API, cudaErrorSystemNotReady (802);
NVIDIA Fabric Manager User Guide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Place, Record, Severity, log_pattern

AILMENT = Ailment("DDP240", Severity.ERROR)


@log_pattern(
    r"(?:(?:Cuda|CUDA|cuda)\b[^\n]{0,99}?|[Ee]rror 802: )'?system not yet initialized"
    r"|CUDA_ERROR_SYSTEM_NOT_READY|cudaErrorSystemNotReady"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The number says that CUDA waits for a service of the system."""
    yield Finding(
        "CUDA does not start: the machine's NVSwitches are not set up (802)",
        (record.proof(match, "nvidia-fabricmanager of the driver's version, running"),),
        Fix(
            "start the fabric manager, and have it started at each boot",
            command="sudo systemctl enable --now nvidia-fabricmanager",
        ),
        Place(rank=record.rank, host=record.node),
        ambiguity=Ambiguity(
            (
                "nvidia-fabricmanager does not run",
                "nvidia-fabricmanager is of another version than the driver",
                "confidential computing is on, and the GPUs were not set ready",
            ),
            "systemctl status nvidia-fabricmanager; nv-fabricmanager --version; "
            "nvidia-smi --query-gpu=driver_version --format=csv; nvidia-smi -q | grep -A3 Fabric",
        ),
    )
