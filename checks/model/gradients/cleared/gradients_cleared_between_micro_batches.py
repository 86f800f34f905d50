"""Gradients are cleared before each micro-batch of an accumulation: the step is given those of the last one alone.

## What happens

Accumulation adds up the gradients of several backwards, and steps once. `zero_grad()` at the top of the loop throws
away what was there with each micro-batch: of four batches three are computed in vain, and where the loss is divided by
their number, the step is a quarter of what it should be. Nothing fails.

## How to be sure

Before two sampled steps after one another several backwards added to each gradient, and gradients were cleared
between all of them; the line that steps depends on a remainder (`(i + 1) % 4 == 0`).

Silent where several optimizers take turns (a GAN clears what the other's loss has left), and where the step depends
on no remainder: sharpness-aware steps and projections of several losses clear on purpose.

## How to mend it

Clear after the step, within the same `if`:

    loss.backward()
    if (i + 1) % accumulate == 0:
        optimizer.step()
        optimizer.zero_grad()

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "Automatic Mixed Precision
examples", gradient accumulation.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpdoctor.check import (
    ACCELERATE,
    Ailment,
    Evidence,
    Finding,
    Fix,
    ParametersHeld,
    Place,
    Severity,
    StepFingerprinted,
    Training,
    place,
    tests_around,
    tree_of,
    watch,
)

from ...._ledgers.calls import calls_of

AILMENT = Ailment("DDP1504", Severity.ERROR)
SURE = 2
BY_ACCELERATE = Fix(
    "clear by the prepared optimizer, after its step: within accumulate both wait for the last micro-batch",
    diff=" with accelerator.accumulate(model):\n-    model.zero_grad()\n     accelerator.backward(loss)\n"
    "     optimizer.step()\n+    optimizer.zero_grad()",
)
FIX = Fix(
    "clear after the step, and not before each micro-batch",
    diff="-    optimizer.zero_grad()\n     loss.backward()\n     if (i + 1) % accumulate == 0:\n"
    "         optimizer.step()\n+        optimizer.zero_grad()",
)


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Count what was added, and how often it was cleared, before two steps."""
    last = next(training.before(event, optimizer=event.optimizer), None)
    if last is None or event.rank != 0 or not (_clears(event) and _clears(last)):
        return
    before = next(training.before(last, optimizer=event.optimizer), None)
    optimizers = {each.optimizer for each in training.of(ParametersHeld, pid=event.pid)}
    site = event.site
    tests = [each for each in tests_around(site.file, site.line) if _counts(site.file, each)] if site else []
    count = max(event.added)
    accumulates = tests or float(count) in event.divisors
    if len(optimizers) > 1 or site is None or not accumulates or (before is not None and _clears(before)):
        return
    yield Finding(
        f"gradients are cleared before each of {count} micro-batches: the step is given those of the last one alone",
        (
            Evidence(
                f"{count} backwards before step {event.number}, and gradients were cleared {event.cleared} times "
                "between them",
                "none of them",
                f"rank {event.rank}",
            ),
            Evidence(f"`{tests[0]}`" if tests else f"each loss is divided by {count}", "", str(site)),
        ),
        BY_ACCELERATE if not tests and training.framework is ACCELERATE else FIX,
        _line(site.file) or place(site),
    )


def _clears(event: StepFingerprinted) -> bool:
    count = max(event.added, default=0)
    return count >= SURE and event.cleared >= count - 1


def _counts(file: str, test: str) -> bool:
    """Whether a test depends on a remainder, of its own or by a variable."""
    names = {node.id for node in ast.walk(ast.parse(test)) if isinstance(node, ast.Name)}
    return "%" in test or any(
        "%" in ast.unparse(node.value)
        for node in tree_of(file).of(ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id in names
    )


def _line(file: str) -> Place | None:
    """Return the one line that clears with each micro-batch."""
    calls = calls_of({file}, frozenset({"zero_grad"}))
    found = [each for each in calls if not any(_counts(file, test) for test in tests_around(file, each.line or 0))]
    return found[0] if len(found) == 1 else None
