"""Anomaly detection of autograd was left on: each operation keeps the Python stack that it was called from.

## What happens

`torch.autograd.set_detect_anomaly(True)`, or `detect_anomaly=True` of a trainer, finds the operation whose backward
failed or gave NaN. For that each operation of the forward writes down its stack, and the backward looks for NaN in each
gradient. A training of small operations takes twice as long.

## How to be sure

`ddpdoctor run --profile 50 -- COMMAND` looks every few milliseconds where the thread that trains is. ddpdoctor finds it
where anomaly detection is on, or switched on for a part of half of the steps or more, and a twentieth of what the
thread computes, and half a millisecond of a step, goes to the writing of stacks. The search for NaN comes on top.

## How to mend it

Leave it out once the fault is found, or put only the steps in question under `with torch.autograd.detect_anomaly():`.

## Versions and sources

Holds for torch 2.2 to 2.13. Sources: PyTorch documentation, "Anomaly detection"; PyTorch Performance Tuning Guide,
"Disable debugging APIs".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    LineKind,
    LinesSampled,
    Place,
    Profiled,
    SampledLine,
    Severity,
    StepsTimed,
    Training,
    watch,
    withs_around,
)

from ..._findings.profiled import step_seconds
from ..._scripts.set_at import set_at

AILMENT = Ailment("DDP912", Severity.NOTE)
MUCH, LEAST = 0.05, 0.0005  # of what the thread computes; seconds of a step
HALF = 0.5  # of the steps
SWITCHES = re.compile(r"\b(set_)?detect_anomaly\((?!False)")
SHOWN = 4  # ranks


@watch(StepsTimed)
def while_training(event: StepsTimed, training: Training) -> Iterator[Finding]:
    """Measure what the stacks take of what each rank computes."""
    measured, sampled = training.complete(Profiled), training.complete(LinesSampled)
    if (
        not sampled
        or not measured
        or not (all(each.anomalies for each in measured.values()) or _is_on_within_steps(sampled))
    ):
        return
    steps = max(each.steps for each in event.ranks)
    shares = {
        rank: sum(line.processor for line in told.sampled if line.kind == LineKind.STACK_KEPT) / max(1, told.processor)
        for rank, told in sorted(sampled.items())
    }
    least = min(shares.values())
    total = step_seconds(measured)
    line = next((line for told in sampled.values() for line in told.sampled if line.kind == LineKind.STACK_KEPT), None)
    if line is None or least < MUCH or least * total < LEAST:
        return
    context = next((each for each in _contexts(line) if _switches_on(each)), "")
    calls = [] if context else [each for each in set_at(training, {"set_detect_anomaly"}) if _switches_on(each.call)]
    switch = context or "torch.autograd.set_detect_anomaly(True)"
    yield Finding(
        f"anomaly detection of autograd is on: keeping the stack of each operation takes {least:.0%} of what a rank "
        "computes, and the backward looks for NaN in each gradient",
        tuple(
            Evidence(f"{part:.0%} in the stacks of operations", "" if at else "none", f"rank {rank}, {steps} steps")
            for at, (rank, part) in enumerate(list(shares.items())[:SHOWN])
        ),
        Fix(
            "leave it out (in Lightning detect_anomaly=False): of what a rank computes in a step of "
            f"{1e3 * total:.0f} ms, about {least:.0%} were for it, and the looks for NaN besides",
            diff=(calls[0].without if calls else "") or f"-{switch}",
        ),
        Place(file=calls[0].file, line=calls[0].line) if calls else Place(file=line.file, line=line.line),
    )


def _is_on_within_steps(sampled: Mapping[int, LinesSampled]) -> bool:
    """Whether the line that keeps stacks stands in a ``with`` that switches it on, in half of the steps or more."""
    return all(
        any(
            line.kind == LineKind.STACK_KEPT
            and line.steps >= HALF * told.steps
            and any(map(_switches_on, _contexts(line)))
            for line in told.sampled
        )
        for told in sampled.values()
    )


def _contexts(line: SampledLine) -> list[str]:
    return [ast.unparse(item.context_expr) for each in withs_around(line.file, line.line) for item in each.items]


def _switches_on(context: str) -> bool:
    return SWITCHES.search(context) is not None
