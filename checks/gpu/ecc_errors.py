"""A GPU has had uncorrectable memory errors since it was last reset.

An uncorrectable ECC error destroys what was in that memory. CUDA ends the process that touched it ("uncorrectable
ECC error encountered"); in a data-parallel training the other ranks then wait for the dead one until their time-out.
A GPU that had one is likely to have more until it is reset, and if they come back after a reset, it is to be replaced.

To be sure: `nvidia-smi -q -d ECC,ROW_REMAPPER`.

Source: NVIDIA GPU Debug Guidelines; NVML, nvmlDeviceGetTotalEccErrors (volatile counters, uncorrected). Holds for all
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

CARD = Card("DDP202", Severity.ERROR)


@probe
def counted(gpus: Gpus) -> Iterator[Finding]:
    """Read each GPU's volatile counter."""
    for gpu in gpus.devices:
        if gpu.ecc_uncorrected:
            yield Finding(
                f"{named(gpu)} has had {gpu.ecc_uncorrected} uncorrectable ECC errors since its last reset",
                (Evidence(f"{gpu.ecc_uncorrected} uncorrected volatile ECC errors", "0", "NVML"),),
                Fix("stop what runs on it and reset it", command=f"sudo nvidia-smi --gpu-reset -i {gpu.index}"),
                Place(gpu=gpu.index),
            )
