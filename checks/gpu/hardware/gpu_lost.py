"""A GPU does not answer: it has fallen off the bus.

## What happens

The driver lists the GPU, but NVML says "GPU is lost" when asked about it. Every CUDA call on it fails, often with
"unknown error" or "unable to determine the device handle". A training that counts the GPUs starts a rank on this one.
That rank dies at once, and the others wait for it until their time-out.

Causes: overheating, the power supply, the riser or the slot, a crash of the GPU's firmware.

## How to be sure

ddpdoctor asks NVML about each GPU that the driver lists, and each must answer. To verify it by hand, look for Xid 79,
"GPU has fallen off the bus", in the log of the Linux kernel:

    sudo dmesg | grep -i xid

## How to mend it

Train on the other GPUs until the machine is switched off and on again; for example without GPU 1 of four:

    export CUDA_VISIBLE_DEVICES=0,2,3

If the GPU is lost again after that, check cooling, power cables, riser and slot, and have the GPU replaced.

## Versions and sources

Holds for all versions of torch. Sources: NVML, NVML_ERROR_GPU_IS_LOST; NVIDIA, "Xid Errors".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Place, Severity, probe

if TYPE_CHECKING:
    from ddpdoctor.check import Gpus

AILMENT = Ailment("DDP204", Severity.ERROR)


@probe
def asked(gpus: Gpus) -> Iterator[Finding]:
    """Look for GPUs that NVML lists and cannot reach."""
    rest = ",".join(str(gpu.index) for gpu in gpus.devices if gpu.lost is None)
    for gpu in gpus.devices:
        if gpu.lost is not None:
            yield Finding(
                f"GPU {gpu.index} does not answer: {gpu.lost}",
                (Evidence(gpu.lost, "an answer", f"NVML, GPU {gpu.index}"),),
                Fix(
                    "train on the others until the machine is power-cycled",
                    command=f"export CUDA_VISIBLE_DEVICES={rest}",
                ),
                Place(gpu=gpu.index),
            )
