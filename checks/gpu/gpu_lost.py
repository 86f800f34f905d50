"""A GPU does not answer: it has fallen off the bus.

The driver lists the GPU, but NVML says "GPU is lost" when asked about it. Every CUDA call on it fails, often with
"unknown error" or "unable to determine the device handle", and a training that counts GPUs starts a rank on it that
dies at once while the others wait. Causes: overheating, power supply, the riser or slot, a crashed firmware.

To be sure: `sudo dmesg | grep -i xid`; Xid 79 is "GPU has fallen off the bus".

Source: NVML, NVML_ERROR_GPU_IS_LOST; NVIDIA, "Xid Errors". Holds for all versions of torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Evidence, Finding, Fix, Place, Severity
from ddpdoctor.check import probe

if TYPE_CHECKING:
    from ddpdoctor.probe.gpus import Gpus

CARD = Card("DDP204", Severity.ERROR)


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
