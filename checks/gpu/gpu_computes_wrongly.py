"""A GPU fails a small computation, or gives another result than the CPU.

Each visible GPU multiplies matrices of small whole numbers, where every right result is exact, and copies memory to
and fro, in a process of its own. A GPU that fails here fails or, worse, computes wrongly in training.

Causes: torch is not built for this GPU or driver ("no kernel image is available"), broken hardware, exhausted memory.

To be sure: `dcgmi diag -r 3` (NVIDIA DCGM), or the same job on another machine.

Holds for torch 2.2 and later with CUDA.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Evidence, Finding, Fix, Place, Severity
from ddpdoctor.check import probe
from ddpdoctor.probe.gpus import Gpus, visible
from ddpdoctor.probe.outcome import Died, Raised, Returned

if TYPE_CHECKING:
    from ddpdoctor.probe.facts import Facts
    from ddpdoctor.probe.jobs import Jobs

CARD = Card("DDP213", Severity.ERROR)


@probe
def smoke(facts: Facts, gpus: Gpus, jobs: Jobs) -> Iterator[Finding]:
    """Compute on each visible GPU."""
    seen = visible(facts.environ.get("CUDA_VISIBLE_DEVICES"), gpus)
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
