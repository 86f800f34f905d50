"""torch is built without CUDA on a machine with NVIDIA GPUs.

## What happens

torch.cuda.is_available() is False, although the machine has NVIDIA GPUs. A script that asks for a GPU raises "Torch
not compiled with CUDA enabled". init_process_group("nccl") raises "Distributed package doesn't have NCCL built in".
A script that falls back to the CPU trains there, without an error and many times slower.

Usual causes: `pip install torch` from an index of CPU wheels, a lock file made on a laptop, a cpu build chosen by
conda. A build for ROCm is not concerned.

## How to be sure

ddpdoctor compares torch.version.cuda with the GPUs that NVML lists. To verify it by hand:

    python -c "import torch; print(torch.__version__, torch.version.cuda)"

A version that ends in `+cpu`, or None as the CUDA version, is a build without CUDA.

## How to mend it

Install a build with CUDA; the driver must support that CUDA (`nvidia-smi` shows the newest that it supports):

    pip uninstall -y torch && pip install torch --index-url https://download.pytorch.org/whl/cu126

Correct the lock file or the index too, so that the next installation does not bring the CPU build back. Where the
training is meant for the CPU, use the backend gloo.

## Versions and sources

Holds for all versions of torch. Sources: torch.version.cuda is None in builds without CUDA; PyTorch, "Start Locally".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Record, Severity, log_pattern, probe

if TYPE_CHECKING:
    from ddpdoctor.check import Facts, Gpus

AILMENT = Ailment("DDP109", Severity.ERROR)


@probe
def build_and_gpus(facts: Facts, gpus: Gpus) -> Iterator[Finding]:
    """Compare the build with the machine."""
    versions = facts.versions
    if versions.torch is not None and versions.torch_cuda is None and versions.torch_hip is None:
        yield Finding(
            f"torch {versions.torch} is built without CUDA, and this machine has {len(gpus.devices)} NVIDIA GPUs",
            (Evidence(f"torch.version.cuda is None in {versions.torch_path}", "a CUDA version", "torch/version.py"),),
            Fix(
                "install a build with CUDA",
                command="pip uninstall -y torch && pip install torch --index-url https://download.pytorch.org/whl/cu126",
            ),
        )


@log_pattern(r"Torch not compiled with CUDA enabled")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read torch's refusal to use a GPU that its build cannot."""
    yield Finding(
        "this torch is built without CUDA, and the script asks for a GPU",
        (record.proof(match, "torch.version.cuda is a version"),),
        Fix(
            "install a build with CUDA",
            command="pip uninstall -y torch && pip install torch --index-url https://download.pytorch.org/whl/cu126",
        ),
        record.place,
    )
