"""A GPU's memory rows wait to be remapped, or can no longer be.

Since Ampere, a faulty row of memory is replaced by a spare one at the next reset. "Pending" means that the faulty row
is still in use: the next access to it can end the training. "Failure" means that the spares are used up: the GPU is
to be replaced (NVIDIA's criterion for returning it).

To be sure: `nvidia-smi -q -d ROW_REMAPPER`.

Source: NVIDIA GPU Memory Error Management; NVML, nvmlDeviceGetRemappedRows. Holds for all versions of torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Evidence, Finding, Fix, Place, Severity
from ddpdoctor.check import probe

from ._text import named

if TYPE_CHECKING:
    from ddpdoctor.probe.gpus import Gpus

CARD = Card("DDP203", Severity.ERROR)


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
