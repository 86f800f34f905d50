"""torch is built without CUDA on a machine with NVIDIA GPUs.

torch.cuda.is_available() is False, init_process_group("nccl") raises "Distributed package doesn't have NCCL built
in", and training runs on the CPU. Typical: `pip install torch` from an index of CPU wheels, a lock file made on a
laptop, conda picking a cpu build.

To be sure: `python -c "import torch; print(torch.__version__, torch.version.cuda)"`: `+cpu`, or None.

Source: torch.version.cuda is None in builds without CUDA; PyTorch "Start Locally". A build for ROCm is not concerned.
Holds for all versions of torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Evidence, Finding, Fix, Severity
from ddpdoctor.check import probe, sign
from ddpdoctor.explain.records import Record

if TYPE_CHECKING:
    from ddpdoctor.probe.facts import Facts
    from ddpdoctor.probe.gpus import Gpus

CARD = Card("DDP109", Severity.ERROR)


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


@sign(r"Torch not compiled with CUDA enabled", explains=("worker-error-hidden-by-launcher",))
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
