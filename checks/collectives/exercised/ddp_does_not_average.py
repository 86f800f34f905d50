"""DistributedDataParallel does not average gradients as it promises on this machine.

## What happens

DDP promises that after backward each rank holds the mean of all ranks' gradients, so that N ranks with a batch of B
each train exactly as one process with the N * B samples. On this machine they do not: a training under DDP goes on
without an error, and its model is wrong.

Usual causes: a broken collective (see the other checks of this area), a damaged or mixed installation of torch, or
hardware that computes wrongly on one device.

## How to be sure

ddpdoctor trains a small model for three optimizer steps on real ranks, and the same model in one process on the whole
batch, and compares the parameters in double precision: they agree to about 1e-15 where DDP is right. Run
`ddpdoctor check --only collectives` in a fresh virtual environment on the same machine. If it passes there, the
installation is at fault, otherwise the machine.

## How to mend it

Best first: if another check of this area fails, too, mend that collective. If the check passes in a fresh virtual
environment, install torch anew and use that environment:

    python3 -m venv fresh && fresh/bin/pip install torch ddpdoctor && fresh/bin/ddpdoctor check --only collectives

If it fails there, too, move the training to another machine.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 (CPU build). Source: PyTorch documentation, "Distributed Data
Parallel".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Returned, Severity, probe

from ._verdict import failures

if TYPE_CHECKING:
    from ddpdoctor.check import Jobs

AILMENT = Ailment("DDP703", Severity.ERROR)
STEPS = 3
SAMPLES = 4  # for each rank
TOLERANCE = 1e-9  # double precision leaves about 1e-15 here; a missing average is of the order of 1e-2


@probe
def against_one_process(jobs: Jobs) -> Iterator[Finding]:
    """Train the same model on real ranks and in one process, and compare."""
    outcomes = jobs.run(train_both)
    fix = Fix(
        "check the collectives in a fresh virtual environment",
        command="python3 -m venv fresh && fresh/bin/pip install torch ddpdoctor && "
        "fresh/bin/ddpdoctor check --only collectives",
    )
    if failed := failures(outcomes):
        yield Finding(f"a small DDP training failed on {len(failed)} of {len(outcomes)} ranks", failed, fix)
        return
    off = {outcome.rank: outcome.value for outcome in outcomes if isinstance(outcome, Returned) and outcome.value}
    if off:
        yield Finding(
            f"after {STEPS} steps DDP's parameters are not those of one process with the whole batch",
            tuple(Evidence(text, "equal to about 1e-15", f"rank {rank}") for rank, text in off.items()),
            fix,
        )


def train_both() -> str:
    """Train under DDP and alone, in a rank; name the first parameter that differs, empty when none does."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    alone = _model()
    batch = torch.randn(STEPS, world * SAMPLES, 6, dtype=torch.float64)
    torch.manual_seed(rank)  # DDP starts every rank from the weights of rank 0
    wrapped = DistributedDataParallel(_model())
    wrapped.module.load_state_dict(alone.state_dict())
    shard = slice(rank * SAMPLES, (rank + 1) * SAMPLES)
    _train(alone, list(batch))
    _train(wrapped, [step[shard] for step in batch])
    for (name, expected), seen in zip(alone.named_parameters(), wrapped.parameters(), strict=True):
        if not torch.allclose(seen, expected, rtol=TOLERANCE, atol=TOLERANCE):
            return f"{name} is off by {(seen - expected).abs().max().item():.3g}"
    return ""


def _model() -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)).double()


def _train(model: Any, batches: list[Any]) -> None:
    import torch

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for batch in batches:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
