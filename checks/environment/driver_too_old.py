"""The NVIDIA driver is older than the CUDA that torch is built for.

"CUDA driver version is insufficient for CUDA runtime version" (error 35), or torch.cuda.is_available() is False with
a warning that the driver is too old. A driver serves every CUDA of its own major version (minor version
compatibility) and all older ones; a newer major version needs a newer driver. A package cuda-compat (in NVIDIA's
containers) makes an old driver of a data centre GPU do: nothing is reported where torch, in a process of its own,
can use CUDA.

To be sure: `nvidia-smi` prints the newest CUDA that the driver supports.

Source: CUDA Toolkit Release Notes, table "CUDA Toolkit and Minimum Required Driver Version for CUDA Minor Version
Compatibility": 450.80.02 for CUDA 11, 525.60.13 for CUDA 12, 580 for CUDA 13 (Linux). Holds for all versions of
torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Evidence, Finding, Fix, NotRun, Severity
from ddpdoctor.check import probe, sign
from ddpdoctor.explain.records import Record
from ddpdoctor.probe.outcome import Returned

if TYPE_CHECKING:
    from ddpdoctor.probe.facts import Facts
    from ddpdoctor.probe.gpus import Gpus
    from ddpdoctor.probe.jobs import Jobs

CARD = Card("DDP110", Severity.ERROR, known_as=("cuda-driver-too-old",))
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


@sign(
    r"CUDA driver version is insufficient for CUDA runtime version|cudaErrorInsufficientDriver\b"
    r"|The NVIDIA driver on your system is too old \(found version (\d+)\)",
    explains=("nccl-unhandled-cuda-unspecified",),
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
