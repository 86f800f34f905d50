"""DataParallel does not compute what the bare model computes on this machine.

## What happens

torch.nn.DataParallel splits a batch over the GPUs of one process, runs a replica on each and gathers the outputs.
Outputs and gradients must be those of the bare model, and its state dict that of the bare model with `module.` before
each key. Where they differ, a training under DataParallel computes wrong gradients without an error.

Usual causes: GPUs whose peer access is broken (the replicas' weights arrive wrong or not at all), one GPU that
computes wrongly, or a mixed installation of torch.

## How to be sure

ddpdoctor loads a small model's state dict into a wrapped copy, and compares outputs and gradients of both in double
precision. Run the check with CUDA_VISIBLE_DEVICES set to one GPU after the other,
`CUDA_VISIBLE_DEVICES=0 ddpdoctor check --only dataparallel-wrong-result`: a GPU that fails alone computes wrongly; if
each passes alone, suspect the transfers between the GPUs. On a machine without GPUs DataParallel calls the module
itself; then only the wrapper, `.module` and the loading of the state dict are checked.

## How to mend it

Use DistributedDataParallel, one process for each GPU: `torchrun --standalone --nproc_per_node=gpu train.py`. It is
faster, also on one machine, and PyTorch no longer recommends DataParallel. Where one GPU fails alone, take it out of
service.

## Versions and sources

Holds for torch 2.2 and later; without GPUs seen with torch 2.13 (CPU build). Source: PyTorch documentation,
"torch.nn.DataParallel".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Returned, Severity, probe

from ._verdict import failures

if TYPE_CHECKING:
    from ddpdoctor.check import Jobs

AILMENT = Ailment("DDP704", Severity.ERROR)
TOLERANCE = 1e-9


@probe
def against_the_bare_model(jobs: Jobs) -> Iterator[Finding]:
    """Compare a wrapped small model with the bare one, in a process of its own."""
    outcomes = jobs.run(compare, ranks=1, backend=None)
    evidence = failures(outcomes) or tuple(
        Evidence(text, "the same as the bare model's", "one process")
        for outcome in outcomes
        if isinstance(outcome, Returned)
        for text in outcome.value
    )
    if evidence:
        yield Finding(
            "DataParallel differs from the bare model",
            evidence,
            Fix(
                "use DistributedDataParallel, one process for each GPU",
                command="torchrun --standalone --nproc_per_node=gpu train.py",
            ),
        )


def compare() -> list[str]:
    """Name what differs between the bare and the wrapped model, in a rank."""
    import torch
    from torch import nn

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    bare = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)).double().to(device)
    twin = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)).double().to(device)
    wrapped = nn.DataParallel(twin)
    wrapped.load_state_dict({f"module.{key}": value for key, value in bare.state_dict().items()})
    batch = torch.randn(8 * max(1, torch.cuda.device_count()), 6, dtype=torch.float64, device=device)
    expected, seen = bare(batch), wrapped(batch)
    expected.square().mean().backward()
    seen.square().mean().backward()
    pairs = [("outputs", expected, seen)] + [
        (f"gradient of {name}", one.grad, other.grad)
        for (name, one), other in zip(bare.named_parameters(), wrapped.module.parameters(), strict=True)
    ]
    wrong = [
        f"{what} are off by {(one - other).abs().max().item():.3g}"
        for what, one, other in pairs
        if one is None or other is None or not torch.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE)
    ]
    if wrapped.module is not twin:
        wrong.append(".module is not the wrapped model")
    return wrong
