"""A GPU fails a small computation, or gives another result than the CPU.

## What happens

A GPU raises an error in a small computation, gives another result than the CPU, or gives none. In a training it does
the same or, worse, computes wrong gradients without an error, and DDP averages them into the gradients of all ranks.

Causes: torch is not built for this GPU or driver ("no kernel image is available"), broken hardware, exhausted memory.

## How to be sure

ddpdoctor lets each visible GPU multiply matrices of small whole numbers, where every right result is exact, and copy
memory to the GPU and back. Each GPU does so in a process of its own, within 60 s. The results must equal those of the
CPU. To verify the hardware by hand, run NVIDIA DCGM's diagnosis, or the same job on another machine:

    dcgmi diag -r 3

## How to mend it

Train on the other GPUs until the cause is removed; for example without GPU 1 of four:

    export CUDA_VISIBLE_DEVICES=0,2,3

With "no kernel image is available", install a torch that is built for the GPU (`ddpdoctor explain
cuda-arch-not-in-build`). With "out of memory", end what holds the memory (`ddpdoctor explain gpu-memory-taken`). A
wrong result is a fault of the hardware: have the GPU replaced if it fails again after a reset.

## Versions and sources

Holds for torch 2.2 and later with CUDA. Source: the check's own computation on each GPU, beside the same on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Died,
    Evidence,
    Finding,
    Fix,
    Gpus,
    Place,
    Raised,
    Returned,
    Severity,
    probe,
    visible_gpus,
)

if TYPE_CHECKING:
    from ddpdoctor.check import Facts, Jobs

AILMENT = Ailment("DDP213", Severity.ERROR)


@probe
def smoke(facts: Facts, gpus: Gpus, jobs: Jobs) -> Iterator[Finding]:
    """Compute on each visible GPU."""
    seen = visible_gpus(facts.environ.get("CUDA_VISIBLE_DEVICES"), gpus)
    for ordinal, index in enumerate(seen):
        (outcome,) = jobs.run(compute, ordinal, ranks=1, backend=None, deadline=60)
        match outcome:
            case Returned(value=""):
                continue
            case Returned(value=text):
                said = text
            case Raised(kind=kind, message=message):
                said = f"{kind}: {' '.join(message.split())[:300]}"
            case Died(signal=number, exitcode=code):
                said = f"the process died by signal {number}" if number else f"the process exited with {code}"
            case _:
                said = "no result within 60 s"
        yield Finding(
            f"GPU {index} fails a small computation: {said}",
            (Evidence(said, "the CPU's result", f"cuda:{ordinal}"),),
            Fix("leave it out until it is mended", command=_without(seen, index)),
            Place(gpu=index),
        )


def _without(seen: tuple[int, ...], bad: int) -> str:
    return f"export CUDA_VISIBLE_DEVICES={','.join(str(index) for index in seen if index != bad)}"


def compute(ordinal: int) -> str:
    """Multiply and copy on a GPU, in a rank; say what is wrong."""
    import torch

    device = torch.device("cuda", ordinal)
    torch.manual_seed(0)
    one = torch.randint(-8, 8, (512, 512)).float()
    if not torch.equal((one.to(device) @ one.to(device)).cpu(), one @ one):
        return "a product of matrices of whole numbers differs from the CPU's"
    if not torch.equal(one.to(device).clone().cpu(), one):
        return "memory that was copied to the GPU came back changed"
    return ""
