"""A GPU's compute mode keeps training processes out.

In mode "prohibited" no process can use the GPU. In mode "exclusive process" one process can: a second rank on the
same GPU, or a notebook that is still open, gets "all CUDA-capable devices are busy or unavailable".

To be sure: `nvidia-smi --query-gpu=index,compute_mode --format=csv`.

Source: NVML, nvmlComputeMode_t. Exclusive mode is harmless for one rank on each GPU, and is then a note. Holds for all
versions of torch.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor import Card, Evidence, Finding, Fix, Place, Severity
from ddpdoctor.check import probe
from ddpdoctor.probe.gpus import Gpus

from ._text import named

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
