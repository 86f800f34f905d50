"""ZeroRedundancyOptimizer's state is asked for before it was consolidated.

## What happens

With ZeroRedundancyOptimizer each rank holds the optimizer's state of its part of the parameters. `state_dict()` gives
the whole only on the rank that `consolidate_state_dict(to=...)` has collected it on, and raises everywhere else and
before: "Optimizer state has not been consolidated on this rank". `consolidate_state_dict` is a collective: called by
rank 0 alone it waits for ever.

## How to be sure

The exception says it.

## How to mend it

    optimizer.consolidate_state_dict(to=0)        # on all ranks
    if rank == 0:
        torch.save(optimizer.state_dict(), path)

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch/distributed/optim/zero_redundancy_optimizer.py, `state_dict`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP836", Severity.ERROR)


@log_pattern(r"Optimizer state has not been consolidated on this rank")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """It is said by the rank that asks."""
    yield Finding(
        "state_dict() of ZeroRedundancyOptimizer is called before all ranks have consolidated it on this one",
        (record.proof(match, "consolidate_state_dict(to=0) on all ranks before"),),
        Fix(
            "consolidate on all ranks, then save on rank 0",
            diff="+optimizer.consolidate_state_dict(to=0)\n if rank == 0:\n"
            "     torch.save(optimizer.state_dict(), path)",
        ),
        record.place,
    )
