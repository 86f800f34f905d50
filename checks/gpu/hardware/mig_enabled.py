"""A GPU is split into MIG slices.

## What happens

A CUDA process sees one MIG slice, however many there are. So `torch.cuda.device_count()` is 1, and a second rank on
this GPU gets "invalid device ordinal" or the same slice. Older versions of NCCL refuse two slices of one GPU as a
duplicate GPU. There is no peer access between slices.

In most cases DDP over several whole GPUs is what is wanted.

## How to be sure

ddpdoctor reads the MIG mode of each GPU from NVML. To verify it by hand, list the GPUs: a line that begins with "MIG"
under a GPU is a slice.

    nvidia-smi -L

## How to mend it

Switch MIG off for data-parallel training; no process can use the GPU meanwhile:

    sudo nvidia-smi -i 0 -mig 0

Where MIG must stay on, start one rank only on this GPU, and name its slice by the UUID that `nvidia-smi -L` prints:
`CUDA_VISIBLE_DEVICES=MIG-...`.

## Versions and sources

Holds for all versions of torch. Source: NVIDIA Multi-Instance GPU User Guide, "CUDA Device Enumeration" and
"Application Considerations".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Place, Severity, probe

from .._text import named

if TYPE_CHECKING:
    from ddpdoctor.check import Gpus

AILMENT = Ailment("DDP209", Severity.WARNING)


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
