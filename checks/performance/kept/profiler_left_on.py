"""torch.profiler was left on: it records each operation of each step, and keeps all of it.

## What happens

`torch.profiler.profile(...)` without a `schedule`, or started by hand before the loop, records each operation of each
step until it is stopped: its name and times, with `record_shapes`, `with_stack` and `profile_memory` more of it. That
costs microseconds an operation, and all of it is kept in memory until the end, so a long training ends by the host's
memory rather than by its last step.

## How to be sure

`ddpdoctor run --profile 50 -- COMMAND` asks torch after each step that it measures whether its profiler records.
ddpdoctor finds it where it does so in all of 20 steps or more. What that costs can be told by a run without it alone.

## How to mend it

Give it a schedule that records a few steps: `torch.profiler.schedule(wait=10, warmup=2, active=3, repeat=1)`, and call
`prof.step()` after each step. Or leave it out once the profile is taken.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: PyTorch documentation, `torch.profiler`, `schedule`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    LinesSampled,
    Place,
    Profiled,
    Severity,
    StepsTimed,
    Training,
    resolve,
    tree_of,
    watch,
)

AILMENT = Ailment("DDP914", Severity.NOTE)
FEWEST = 20  # steps: a schedule records fewer
PROFILERS = {"torch.profiler.profile", "torch.autograd.profiler.profile", "torch.autograd.profiler.emit_nvtx"}
SHOWN = 4  # ranks


@watch(StepsTimed)
def while_training(event: StepsTimed, training: Training) -> Iterator[Finding]:
    """Look for ranks of which each step that was measured was recorded."""
    measured = training.by_rank(Profiled)
    ranks = {rank: each for rank, each in measured.items() if FEWEST <= len(each.total) == each.recorded}
    if not ranks:
        return
    steps = max(len(each.total) for each in ranks.values())
    on = "" if len(ranks) == len(event.ranks) else f" on rank{'s' if ranks.keys() - {min(ranks)} else ''} "
    yield Finding(
        f"torch.profiler records each operation of each of {steps} steps"
        f"{on + ', '.join(map(str, sorted(ranks))) if on else ''}, and keeps all of it in memory",
        tuple(
            Evidence(f"{each.recorded} of {len(each.total)} steps recorded", "" if at else "a few", f"rank {rank}")
            for at, (rank, each) in enumerate(sorted(ranks.items())[:SHOWN])
        ),
        Fix(
            "record a few steps, with prof.step() after each step, or leave it out; a run without it shows what it "
            "costs",
            diff="-torch.profiler.profile(...)\n"
            "+torch.profiler.profile(..., schedule=torch.profiler.schedule(wait=10, warmup=2, active=3, repeat=1))",
        ),
        _place(training),
    )


def _place(training: Training) -> Place:
    """Return where a profiler is made in the files that the loop's lines stand in."""
    files = {line.file for told in training.of(LinesSampled) for line in told.sampled}
    for file in sorted(files):
        tree = tree_of(file)
        for call in tree.of(ast.Call):
            if resolve(tree, call.func) in PROFILERS:
                return Place(file=file, line=call.lineno)
    return Place()
