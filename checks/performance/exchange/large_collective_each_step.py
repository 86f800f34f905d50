"""A line of the training loop exchanges much between the ranks in each step, beside what DDP exchanges.

## What happens

DDP exchanges the gradients, behind the backward. A collective that follows the update (a confusion matrix that is
added up over the ranks, all predictions gathered for a metric, weights averaged or broadcast once more) is hidden
behind nothing: all ranks wait for it, in each step.

## How to be sure

`ddpdoctor run --profile 50 -- COMMAND` times collectives by line, while it measures steps closely. ddpdoctor finds
one of more than 1,024 numbers that your own line calls between the update of a wrapped model and its next forward, in
nearly each step, and that takes a fifth of the step or more and 2 ms, on the rank that waits least: by the clock, and
by the share that the line had before calls were timed. Where ranks wait for a core, and on a GPU, nothing is said.

## How to mend it

What only reports is added up on each rank, and exchanged once in an epoch. Weights that DDP keeps need no exchange of
their own. What the next step does need (the keys of a queue) is sent in 16 bits, or with `async_op=True`, and waited
for where it is used.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch.distributed documentation, "Collective functions".
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from ddpdoctor.check import (
    STARVED,
    Ailment,
    CallsTimed,
    Evidence,
    Finding,
    Fix,
    Place,
    Profiled,
    Severity,
    StepsTimed,
    Training,
    watch,
)

from .._steps import on_cpu, promise
from ..source._at_line import PARAMETERS, what_at
from ..source._step_body import seldom
from ..step._calls import ALONE, SMALL, Cost, by_line, cost_of

AILMENT = Ailment("DDP927", Severity.NOTE)
MUCH, LEAST = 0.2, 0.002  # of a step; seconds of a step
SHOWN = 4  # ranks


@watch(StepsTimed)
def while_training(event: StepsTimed, training: Training) -> Iterator[Finding]:
    """Look for large collectives between the update and the next forward that take much of nearly each step."""
    on_cpu(event)
    told, measured = training.complete(CallsTimed), training.by_rank(Profiled)
    took = [value / 1e9 for each in measured.values() for value in each.total]
    if not told or not took or any(each.starved > STARVED for each in event.ranks):
        return
    total = statistics.median(took)
    for (what, file, line), calls in by_line(told).items():
        is_large = min(each.numbers for each in calls.values()) > SMALL
        if is_large and not what.startswith(ALONE) and not _is_one_of_parameters(file, line):
            cost = cost_of(event, training, Cost(what, calls, 0.0), total)
            if cost.seconds >= max(LEAST, MUCH * total):
                yield _finding(cost, told, took)


def _is_one_of_parameters(file: str, line: int) -> bool:
    """Whether a call is made for each parameter: the loop over them is told (python-loop-in-step)."""
    at = what_at(file, line)
    return at is not None and at[0] == PARAMETERS


def _finding(cost: Cost, told: dict[int, CallsTimed], took: list[float]) -> Finding:
    call, total = cost.most, statistics.median(took)
    file, _, line = (cost.loop or f"{call.file}:{call.line}").rpartition(":")
    return Finding(
        f"{cost.what} at {call.file}:{call.line} exchanges {call.numbers:,} numbers after the update, and takes "
        f"{1e3 * cost.seconds:.1f} ms of each step of {1e3 * total:.1f} ms: {cost.seconds / total:.0%}",
        tuple(
            Evidence(
                f"{each.nanoseconds / 1e6:.1f} ms in the median step, {each.times} calls in {told[rank].steps} steps",
                "" if at else "none in most steps",
                f"rank {rank}",
            )
            for at, (rank, each) in enumerate(sorted(cost.calls.items())[:SHOWN])
        ),
        Fix(
            "add up on each rank what only reports, and exchange it once in an epoch; weights that DDP keeps alike "
            f"need no exchange: {promise(took, [cost.seconds] * len(took))} without it",
            diff=seldom(file, int(line)),
        ),
        Place(file=call.file, line=call.line),
    )
