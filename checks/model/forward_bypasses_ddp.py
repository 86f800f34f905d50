"""The forward bypasses DistributedDataParallel, so that gradients are never averaged.

## What happens

DDP arranges the averaging of gradients in the forward of its wrapper. A loss that is computed with `model.module(x)`,
with a method behind `.module`, or with the bare model that was kept under another name trains each rank on its own
data alone: no error, no hang, as many different models as there are ranks, of which one is saved.

## How to be sure

Right before `optimizer.step()` the norm of a parameter's gradient differs between the ranks, and the
wrapper was not called since the step before. ddpdoctor compares both in the first steps.

## How to mend it

Call the wrapper, `model(x)`. What a method other than forward computes goes into forward.

Silent where a communication hook or the script itself exchanges gradients or parameters, and in evaluation.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "DistributedDataParallel", and
its forward in torch/nn/parallel/distributed.py, which calls prepare_for_backward.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, Bypassed, Evidence, Finding, Fix, Severity, StepSampled, Training, place, watch

from ._training import bypasses, gradients_apart, line, together

AILMENT = Ailment("DDP560", Severity.ERROR)
SURE = 2  # steps: what happens in the first alone is some warming up


@watch(StepSampled)
def while_training(event: StepSampled, training: Training) -> Iterator[Finding]:
    """Compare gradients of a step before which nobody called the wrapper."""
    step = together(event, training)
    if step is None or step.number < SURE or not bypasses(step) or step.by_own_means:
        return
    if apart := gradients_apart(step):
        site = line(Bypassed, step, training)
        yield Finding(
            "the forward bypasses DistributedDataParallel: each rank trains a model of its own",
            (
                apart.evidence("the gradient of", step),
                Evidence(
                    f"no forward through the wrapper since step {step.number - 1}", "one or more", "on every rank"
                ),
                Evidence(f"{step.wrapped.kind} is wrapped", "", str(step.wrapped.site)),
            ),
            Fix(
                "call the wrapper, not what is in it",
                diff="-loss = criterion(model.module(inputs), targets)\n+loss = criterion(model(inputs), targets)",
            ),
            place(site),
        )
