"""DDP searches the graph for unused parameters in every step.

## What happens

With `find_unused_parameters=True` DDP walks through the graph after each forward. Where every parameter gets a
gradient, that is time for nothing: torch warns "find_unused_parameters=True was specified in DDP constructor, but did
not find any unused parameters in the forward pass". Models that skip layers need it, so this is a note.

## How to be sure

`ddpdoctor check --model` names the parameters that get no gradient. In a source (`ddpdoctor lint`): the option is
literally True, and no comment beside it says why. `ddpdoctor run --profile 50 -- COMMAND` measures the search:
ddpdoctor finds it where no measured step of any rank had an unused parameter, and it takes a twentieth of the time or
more, and half a millisecond of a step, on all ranks. What the ranks exchange for it beside that is not in this figure.
On a GPU, where the search goes on while kernels run, nothing is said.

## How to mend it

Leave it out, and see whether the training raises "Expected to have finished reduction". Where the same parameters are
unused in every step, `static_graph=True` finds them once.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: PyTorch documentation, DistributedDataParallel.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    DDP,
    STARVED,
    Ailment,
    Evidence,
    Finding,
    Fix,
    LineKind,
    LinesSampled,
    Place,
    Profiled,
    Severity,
    StepsTimed,
    Training,
    keyword,
    lint,
    watch,
)

from ..._findings.profiled import step_seconds

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP550", Severity.NOTE)
MUCH, LEAST = 0.05, 0.0005  # of the time; seconds of a step
FEWEST = 5  # steps in which the search was seen
SHOWN = 4  # ranks


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for the option where nobody says why."""
    for call in script.calls(DDP):
        option = keyword(call, "find_unused_parameters")
        if not isinstance(option, ast.Constant) or option.value is not True or _is_explained(script, option):
            continue
        yield Finding(
            "DDP searches the graph for unused parameters in every step",
            (script.seen(option, "only where a model skips layers"),),
            Fix("leave it out where every parameter gets a gradient; else static_graph=True"),
            script.place(call),
        )


@watch(StepsTimed)
def while_training(event: StepsTimed, training: Training) -> Iterator[Finding]:
    """Measure the search of a training that has used all parameters in each measured step, on all ranks."""
    measured, sampled = training.complete(Profiled), training.complete(LinesSampled)
    if not measured or not sampled or any(each.unused or not each.searches for each in measured.values()):
        return
    if any(each.device != "cpu" for each in event.ranks):
        return
    total = step_seconds(measured)
    shares = {}
    for rank in event.ranks:
        told = sampled[rank.rank]
        lines = [each for each in told.sampled if each.kind == LineKind.GRAPH_SEARCHED]
        part = sum(each.nanoseconds for each in lines) / max(1, told.nanoseconds)
        if rank.starved > STARVED:
            part = min(part, sum(each.processor for each in lines) / max(1, told.processor))
        shares[rank.rank] = part
    least = min(shares.values())
    line = next((each for each in next(iter(sampled.values())).sampled if each.kind == LineKind.GRAPH_SEARCHED), None)
    if line is None or line.steps < FEWEST or least < MUCH or least * total < LEAST:
        return
    yield Finding(
        f"DDP searches the graph for unused parameters in every step, and there are none: {1e3 * least * total:.1f} of "
        f"{1e3 * total:.1f} ms, {least:.0%}",
        tuple(
            Evidence(
                f"{part:.0%} of the time in the search, no unused parameter in {len(measured[rank].total)} steps",
                "" if at else "no search",
                f"rank {rank}",
            )
            for at, (rank, part) in enumerate(list(shares.items())[:SHOWN])
        ),
        Fix(
            "leave it out where every parameter gets a gradient in each step; DDP raises an error where one does not: "
            f"about {1e3 * (1 - least) * total:.1f} instead of {1e3 * total:.1f} ms a step, or less",
            diff="-model = DistributedDataParallel(model, find_unused_parameters=True)\n"
            "+model = DistributedDataParallel(model)",
        ),
        Place(file=line.file, line=line.line),
    )


def _is_explained(script: Script, option: ast.expr) -> bool:
    """Whether a comment stands on the option's line, or on the one above it."""
    return any("#" in line for line in script.lines[max(0, option.lineno - 2) : option.lineno])
