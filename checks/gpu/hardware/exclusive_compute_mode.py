"""A GPU's compute mode keeps training processes out.

## What happens

In the compute mode "prohibited" no process can use the GPU. In the mode "exclusive process" one process can: a second
rank on the same GPU, or a training that starts while a notebook still holds the GPU, gets "all CUDA-capable devices are
busy or unavailable". With one rank on each GPU the exclusive mode is harmless.

## How to be sure

ddpdoctor reads the mode of each GPU from NVML. It is an error where the mode is "prohibited", or where a process holds
the GPU already; otherwise a note. To verify it by hand:

    nvidia-smi --query-gpu=index,compute_mode --format=csv

In a log the same message also comes from a GPU that has failed or waits for a reset. The log of the Linux kernel tells
them apart: `sudo dmesg | grep -i xid`.

## How to mend it

Set the default mode, and end the processes that are left over, which `nvidia-smi` lists:

    sudo nvidia-smi -i 0 -c DEFAULT

Where the exclusive mode is wanted, start one rank for each GPU, and let each rank select its own GPU with
torch.cuda.set_device before any other CUDA call.

## Versions and sources

Holds for all versions of torch. Source: NVML, nvmlComputeMode_t.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    Place,
    Record,
    Severity,
    log_pattern,
    probe,
)

from .._text import named

if TYPE_CHECKING:
    from ddpdoctor.check import Gpus

AILMENT = Ailment("DDP208", Severity.ERROR)
MODES = {1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
PROHIBITED = 2


@probe
def mode(gpus: Gpus) -> Iterator[Finding]:
    """Read each GPU's compute mode."""
    for gpu in gpus.devices:
        if gpu.compute_mode not in MODES:
            continue
        text = MODES[gpu.compute_mode]
        yield Finding(
            f"{named(gpu)} is in compute mode {text!r}",
            (Evidence(text, "default", "NVML"),),
            Fix("set the default mode", command=f"sudo nvidia-smi -i {gpu.index} -c DEFAULT"),
            Place(gpu=gpu.index),
            severity=Severity.ERROR if gpu.compute_mode == PROHIBITED or gpu.processes else Severity.NOTE,
        )


@log_pattern(r"CUDA-capable device(?:s are|\(s\) is/are) busy or unavailable|cudaErrorDevicesUnavailable")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read CUDA's refusal, which leaves open who keeps the process out."""
    yield Finding(
        "a GPU takes no further process",
        (record.proof(match, "a context on the GPU"),),
        Fix("set the default mode, and end what is left over", command="sudo nvidia-smi -c DEFAULT; nvidia-smi"),
        record.place,
        ambiguity=Ambiguity(
            (
                "compute mode 'exclusive process', and another process has the GPU",
                "the GPU has failed or waits for a reset",
            ),
            "nvidia-smi --query-gpu=index,compute_mode --format=csv; sudo dmesg | grep -i xid",
        ),
    )
