"""A GPU's compute mode keeps training processes out.

In mode "prohibited" no process can use the GPU. In mode "exclusive process" one process can: a second rank on the
same GPU, or a notebook that is still open, gets "all CUDA-capable devices are busy or unavailable".

To be sure: `nvidia-smi --query-gpu=index,compute_mode --format=csv`.

Source: NVML, nvmlComputeMode_t. Exclusive mode is harmless for one rank on each GPU, and is then a note. Holds for all
versions of torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Doubt, Evidence, Finding, Fix, Place, Severity
from ddpdoctor.check import Role, probe, sign
from ddpdoctor.explain.records import Record

from ._text import named

if TYPE_CHECKING:
    from ddpdoctor.probe.gpus import Gpus

CARD = Card("DDP208", Severity.ERROR)
MODES = {1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
PROHIBITED = 2


@probe
def mode(gpus: Gpus) -> Iterator[Finding]:
    """Read each GPU's compute mode."""
    for gpu in gpus.devices:
        if gpu.compute_mode not in MODES:
            continue
        text = MODES[gpu.compute_mode]
        yield Finding(
            f"{named(gpu)} is in compute mode {text!r}",
            (Evidence(text, "default", "NVML"),),
            Fix("set the default mode", command=f"sudo nvidia-smi -i {gpu.index} -c DEFAULT"),
            Place(gpu=gpu.index),
            severity=Severity.ERROR if gpu.compute_mode == PROHIBITED or gpu.processes else Severity.NOTE,
        )


@sign(
    r"CUDA-capable device(?:s are|\(s\) is/are) busy or unavailable|cudaErrorDevicesUnavailable",
    role=Role.SYMPTOM,
    explains=("nccl-unhandled-cuda-unspecified", "worker-error-hidden-by-launcher"),
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read CUDA's refusal, which leaves open who keeps the process out."""
    yield Finding(
        "a GPU takes no further process",
        (record.proof(match, "a context on the GPU"),),
        Fix("set the default mode, and end what is left over", command="sudo nvidia-smi -c DEFAULT; nvidia-smi"),
        record.place,
        doubt=Doubt(
            (
                "compute mode 'exclusive process', and another process has the GPU",
                "the GPU has failed or waits for a reset",
            ),
            "nvidia-smi --query-gpu=index,compute_mode --format=csv; sudo dmesg | grep -i xid",
        ),
    )
