"""A GPU has had uncorrectable memory errors since it was last reset.

## What happens

An uncorrectable ECC error destroys the data in that part of the memory. CUDA ends the process that reads it
("uncorrectable ECC error encountered"). In a data-parallel training the other ranks then wait for the dead one until
their time-out. A GPU that has had such an error is likely to have more until it is reset.

## How to be sure

ddpdoctor reads from NVML the volatile counter of each GPU, which counts since the last reset; it must be 0. To see the
counters by hand:

    nvidia-smi -q -d ECC,ROW_REMAPPER

NCCL 2.31 and newer compare the counters of all ranks, with NCCL_RUN_RAS_DIAGNOSTICS=1, and print "NCCL DIAG [INFO] ECC:
uncorrected volatile errors" with the ranks.

## How to mend it

Stop all processes that use the GPU, and reset it:

    sudo nvidia-smi --gpu-reset -i 0

Until then leave it out by CUDA_VISIBLE_DEVICES, or take the node out of service. If the errors come back after a reset,
replace the GPU.

## Versions and sources

Holds for all versions of torch. Sources: NVIDIA GPU Debug Guidelines; NVML, nvmlDeviceGetTotalEccErrors (volatile
counters, uncorrected).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Place, Record, Severity, log_pattern, probe

from .._text import named

if TYPE_CHECKING:
    from ddpdoctor.check import Gpus

AILMENT = Ailment("DDP202", Severity.ERROR)


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


@log_pattern(r"NCCL DIAG \[INFO\] ECC: uncorrected volatile errors on rank\(s\) \{([\d,]+)")
def in_diagnostics(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read the ranks whose GPUs NCCL found to have had some."""
    ranks = match[1].strip(",").split(",")
    yield Finding(
        f"the GPU{'s' if len(ranks) > 1 else ''} of rank{'s' if len(ranks) > 1 else ''} {', '.join(ranks)} had "
        "uncorrectable memory errors since the last reset",
        (record.proof(match, "none"),),
        Fix(
            "reset the GPU, or leave it out",
            command="nvidia-smi -q -d ECC,ROW_REMAPPER; sudo nvidia-smi --gpu-reset -i 0",
        ),
        Place(rank=int(ranks[0])) if len(ranks) == 1 else Place(),
    )
