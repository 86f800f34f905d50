"""A GPU is split into MIG slices.

A CUDA process sees one MIG slice, however many there are, so `torch.cuda.device_count()` is 1 and a second rank on
this GPU gets "invalid device ordinal" or the same slice. NCCL between slices of one GPU is refused as a duplicate GPU
before NCCL 2.2x, and has no peer access. DDP over several whole GPUs is what is wanted in most cases.

To be sure: `nvidia-smi -L`.

Source: NVIDIA Multi-Instance GPU User Guide, "CUDA Device Enumeration" and "Application Considerations". Holds for all
versions of torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Evidence, Finding, Fix, Place, Severity
from ddpdoctor.check import probe

from ._text import named

if TYPE_CHECKING:
    from ddpdoctor.probe.gpus import Gpus

CARD = Card("DDP209", Severity.WARNING)


@probe
def mode(gpus: Gpus) -> Iterator[Finding]:
    """Read each GPU's MIG mode."""
    for gpu in gpus.devices:
        if gpu.mig:
            yield Finding(
                f"{named(gpu)} is split into MIG slices: a rank sees one slice of it",
                (Evidence("MIG mode enabled", "disabled", "NVML"),),
                Fix("switch MIG off for data-parallel training", command=f"sudo nvidia-smi -i {gpu.index} -mig 0"),
                Place(gpu=gpu.index),
            )
