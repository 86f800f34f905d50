"""A GPU has had uncorrectable memory errors since it was last reset.

An uncorrectable ECC error destroys what was in that memory. CUDA ends the process that touched it ("uncorrectable
ECC error encountered"); in a data-parallel training the other ranks then wait for the dead one until their time-out.
A GPU that had one is likely to have more until it is reset, and if they come back after a reset, it is to be replaced.

NCCL 2.31 and newer compare the counters of all ranks, with NCCL_RUN_RAS_DIAGNOSTICS=1, and print "NCCL DIAG [INFO] ECC:
uncorrected volatile errors" with the ranks.

To be sure: `nvidia-smi -q -d ECC,ROW_REMAPPER`.

Source: NVIDIA GPU Debug Guidelines; NVML, nvmlDeviceGetTotalEccErrors (volatile counters, uncorrected). Holds for all
versions of torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Evidence, Finding, Fix, Place, Severity
from ddpdoctor.check import probe, sign
from ddpdoctor.explain.records import Record

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


@sign(r"NCCL DIAG \[INFO\] ECC: uncorrected volatile errors on rank\(s\) \{([\d,]+)")
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
