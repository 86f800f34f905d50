"""TORCH_DISTRIBUTED_DEBUG=DETAIL ends every rank by a segmentation fault.

The variable that is to help with debugging wraps each process group in one that compares all collectives. With torch
2.13 (CPU build) over gloo, a process then dies by SIGSEGV as soon as DistributedDataParallel wraps a model: no Python
traceback, and torchrun prints "Signal 11 (SIGSEGV)". It dies in
Logger.set_construction_data_and_log, which the constructor calls: with one rank as with two, whatever the model, also
with init_sync=False. Collectives and new_group work under DETAIL, and so does DDP under INFO.

This is proven, not assumed: small ranks wrap a model with the variable set. Nothing is reported where they live.

To be sure: start the training with TORCH_DISTRIBUTED_DEBUG=INFO; if it runs, this is the cause.

Source: torch.distributed documentation, "Debugging torch.distributed applications", for what it is to do; the crash
was seen with torch 2.13 (CPU build) over gloo.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Evidence, Finding, Fix, NotRun, Place, Severity
from ddpdoctor.check import probe
from ddpdoctor.probe.outcome import Died, Returned

if TYPE_CHECKING:
    from ddpdoctor.probe.facts import Facts
    from ddpdoctor.probe.jobs import Jobs

CARD = Card("DDP107", Severity.ERROR)
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
