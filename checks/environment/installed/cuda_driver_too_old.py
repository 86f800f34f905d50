"""The NVIDIA driver is older than the CUDA that torch is built for.

## What happens

CUDA raises "CUDA driver version is insufficient for CUDA runtime version" (error 35), or torch.cuda.is_available()
is False and torch warns that the driver is too old. A driver supports every CUDA of its own major version (minor
version compatibility) and all older ones. A newer major version needs a newer driver.

The package cuda-compat (in NVIDIA's containers) lets an old driver of a data centre GPU run a newer CUDA.

## How to be sure

ddpdoctor compares the driver's version, from NVML, with the oldest driver for the CUDA of the build. Then it asks
torch in a process of its own, and reports nothing where torch can use CUDA. To verify it by hand, compare the newest
CUDA that the driver supports, which `nvidia-smi` prints, with the CUDA of the build:

    python -c "import torch; print(torch.version.cuda)"

## How to mend it

Best first: update the driver; or install a torch that is built for a CUDA that the driver supports:

    pip install torch --index-url https://download.pytorch.org/whl/cu118

## Versions and sources

Holds for all versions of torch. Source: CUDA Toolkit Release Notes, table "CUDA Toolkit and Minimum Required Driver
Version for CUDA Minor Version Compatibility": 450.80.02 for CUDA 11, 525.60.13 for CUDA 12, 580 for CUDA 13 (Linux).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, NotRun, Record, Returned, Severity, log_pattern, probe

if TYPE_CHECKING:
    from ddpdoctor.check import Facts, Gpus, Jobs

AILMENT = Ailment("DDP110", Severity.ERROR)
OLDEST = {11: (450, 80), 12: (525, 60), 13: (580, 0)}  # driver by CUDA major version


@probe
def driver_and_build(facts: Facts, gpus: Gpus, jobs: Jobs) -> Iterator[Finding]:
    """Compare the driver with the build of torch, then try."""
    cuda = facts.versions.torch_cuda
    if cuda is None or gpus.driver is None:
        raise NotRun("torch is built without CUDA" if cuda is None else "NVML tells no driver version")
    oldest = OLDEST.get(int(cuda.partition(".")[0]))
    numbers = [int(part) for part in gpus.driver.split(".")[:2] if part.isdigit()]
    if oldest is not None and numbers and tuple(numbers) < oldest and not _works(jobs):
        yield Finding(
            f"driver {gpus.driver} is too old for CUDA {cuda}, which torch {facts.versions.torch} is built for",
            (Evidence(f"driver {gpus.driver}", f"{oldest[0]}.{oldest[1]:02} or newer", "NVML"),),
            Fix(
                "update the driver, or install a torch for an older CUDA",
                command="pip install torch --index-url https://download.pytorch.org/whl/cu118",
            ),
        )


def _works(jobs: Jobs) -> bool:
    (outcome,) = jobs.run(cuda_is_available, ranks=1, backend=None)
    return isinstance(outcome, Returned) and bool(outcome.value)


def cuda_is_available() -> bool:
    """Ask CUDA, in a rank."""
    import torch

    return torch.cuda.is_available()


@log_pattern(
    r"CUDA driver version is insufficient for CUDA runtime version|cudaErrorInsufficientDriver\b"
    r"|The NVIDIA driver on your system is too old \(found version (\d+)\)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read what the CUDA runtime says of the driver; the number is the CUDA that the driver has, times 1000."""
    has = f"CUDA {int(match[1]) // 1000}.{int(match[1]) % 1000 // 10}" if match[1] else "an older CUDA"
    yield Finding(
        f"the NVIDIA driver is for {has} than torch or NCCL is built for"
        if not match[1]
        else f"the NVIDIA driver serves {has} at most, and torch is built for a newer one",
        (record.proof(match, "a driver at least as new as the build's CUDA"),),
        Fix(
            "update the driver, or install a torch for the CUDA that nvidia-smi shows",
            command="pip install torch --index-url https://download.pytorch.org/whl/cu118",
        ),
        record.place,
    )
