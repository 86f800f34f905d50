"""TORCH_DISTRIBUTED_DEBUG=DETAIL ends every rank by a segmentation fault.

## What happens

The variable is meant to help with debugging: it wraps each process group in one that compares all collectives. With
torch 2.13 (CPU build) over gloo, a process dies by SIGSEGV as soon as DistributedDataParallel wraps a model. There is
no Python traceback, and torchrun prints "Signal 11 (SIGSEGV)".

The process dies in Logger.set_construction_data_and_log, which the constructor of DDP calls. It dies with one rank as
with two, with any model, and also with init_sync=False. Collectives and new_group work under DETAIL, and DDP works
under INFO.

## How to be sure

ddpdoctor starts small ranks that wrap a model, once with the variable and once without. It reports only that the ranks
die with it and return without it. To verify it by hand, start the training with the variable at INFO. If it runs, this
is the cause:

    TORCH_DISTRIBUTED_DEBUG=INFO torchrun --nproc_per_node=2 train.py

## How to mend it

Use INFO, which names unused parameters as well; or unset the variable.

    export TORCH_DISTRIBUTED_DEBUG=INFO

## Versions and sources

Seen with torch 2.13 (CPU build) over gloo. Source for what the variable is meant to do: torch.distributed
documentation, "Debugging torch.distributed applications".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Died, Evidence, Finding, Fix, NotRun, Place, Returned, Severity, probe

if TYPE_CHECKING:
    from ddpdoctor.check import Facts, Jobs

AILMENT = Ailment("DDP107", Severity.ERROR)
VARIABLE = "TORCH_DISTRIBUTED_DEBUG"


@probe
def in_a_small_job(facts: Facts, jobs: Jobs) -> Iterator[Finding]:
    """Wrap a model on real ranks, with the variable and without."""
    value = facts.environ.get(VARIABLE, "")
    if not value:
        raise NotRun(f"{VARIABLE} is not set")
    dead = [each for each in jobs.run(wrap, environ={VARIABLE: value}) if isinstance(each, Died) and each.signal]
    if dead and all(isinstance(outcome, Returned) for outcome in jobs.run(wrap)):
        yield Finding(
            f"with {VARIABLE}={value} {len(dead)} ranks died by signal {dead[0].signal} when DDP wrapped a model",
            tuple(
                Evidence(
                    f"died by signal {each.signal}", "returns, as it does without the variable", f"rank {each.rank}"
                )
                for each in dead
            ),
            Fix("use INFO, which names unused parameters all the same", command=f"export {VARIABLE}=INFO"),
            Place(variable=VARIABLE),
        )


def wrap() -> None:
    """Wrap a small model, in a rank."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    model(torch.ones(2, 4)).sum().backward()
