"""A GPU's memory rows wait to be remapped, or can no longer be.

## What happens

GPUs since the Ampere generation replace a faulty row of memory by a spare row, at the next reset of the GPU.
"Pending" means that the faulty row is still in use: the next access to it can end the training. "Failure" means that
the spare rows are used up, and the fault stays.

## How to be sure

`nvidia-smi -q -d ROW_REMAPPER` prints both fields, "Pending" and "Remapping Failure Occurred", for each GPU.
ddpdoctor reads the same values from NVML. It expects "no" for both. A GPU that has no row remapper is not judged.

## How to mend it

- Pending: stop everything that runs on the GPU and reset it, `sudo nvidia-smi --gpu-reset -i 0` with the index from
  the finding. A reboot of the host does the same.
- Failure: take the GPU out of service and have it replaced. This is NVIDIA's criterion for returning it.

## Versions and sources

Holds for all versions of torch. Source: NVIDIA GPU Memory Error Management; NVML, nvmlDeviceGetRemappedRows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Place, Severity, probe

from .._text import named

if TYPE_CHECKING:
    from ddpdoctor.check import Gpus

AILMENT = Ailment("DDP203", Severity.ERROR)


@probe
def pending_or_failed(gpus: Gpus) -> Iterator[Finding]:
    """Read each GPU's row remapper."""
    for gpu in gpus.devices:
        if gpu.remapped is None:
            continue
        _, uncorrectable, pending, failed = gpu.remapped
        if failed:
            yield Finding(
                f"{named(gpu)} could not remap a faulty row of its memory: its spares are used up",
                (Evidence("row remapping failure: yes", "no", "NVML"),),
                Fix("take it out of service", command="nvidia-smi -q -d ROW_REMAPPER"),
                Place(gpu=gpu.index),
            )
        elif pending:
            yield Finding(
                f"{named(gpu)} has faulty rows that are remapped only at the next reset",
                (Evidence(f"remapping pending, {uncorrectable} uncorrectable so far", "nothing pending", "NVML"),),
                Fix("stop what runs on it and reset it", command=f"sudo nvidia-smi --gpu-reset -i {gpu.index}"),
                Place(gpu=gpu.index),
            )
