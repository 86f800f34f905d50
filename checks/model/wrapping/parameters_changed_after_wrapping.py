"""Parameters were added or unfrozen after DDP wrapped the model, and are never averaged.

## What happens

DDP puts the parameters that require a gradient into buckets when it wraps the model. One that is new since is in
none: in a layer that was replaced or added, or that the first forward makes, or one that was frozen then and is
trained now. Its gradient is that of the rank's own batch, the ranks' copies drift apart, and nothing is printed.

## How to be sure

Right before `optimizer.step()` the norm of its gradient differs between the ranks. ddpdoctor compares
those that an optimizer holds and that DDP did not see when it wrapped.

`ddpdoctor check --model train.py:build --batch train.py:batch` compares the names of the parameters before a forward
and after it.

In a source (`ddpdoctor lint`): after the line that wraps the model, a loop over all its parameters sets `requires_grad`
to False, or a layer of `torch.nn` is assigned to `model.module.NAME`, and nothing wraps the model again.

## How to mend it

Change the model first, then wrap it; unfreezing between two phases of a training needs a new wrapper,
and an optimizer that holds the new parameters.

A parameter that was frozen or replaced after wrapping is one that DDP waits for in vain: "Expected to have finished
reduction in the prior iteration", in the second step.

A model that was moved to another device after wrapping still averages, by way of the old device: a warning.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "DistributedDataParallel":
never try to change the model's parameters after wrapping.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    UNUSED,
    Ailment,
    Evidence,
    Failed,
    Finding,
    Fix,
    Severity,
    StepSampled,
    Training,
    Wrapped,
    lint,
    place,
    probe,
    watch,
)

from .._training import Apart, Step, strays_apart, together
from .._words import before_wrapping, counted, frozen_later, listed, made_later
from ._after_wrapping import is_layer, is_whole, wrapped_again, wrapped_before

if TYPE_CHECKING:
    from ddpdoctor.check import ModelExam, Script

AILMENT = Ailment("DDP562", Severity.ERROR)
SURE = 2  # steps: where a parameter was replaced, DDP itself stops before the second


@probe
def of_the_forward(model: ModelExam) -> Iterator[Finding]:
    """Look for parameters that the model has only since its forward ran."""
    made = model.steps.alone()[0].created
    if made:
        layer = made[0].rpartition(".")[0]
        yield Finding(
            f"the forward of {model.model.kind} makes {counted(len(made), 'parameter')}, which DDP, wrapped around the "
            f"model before, never averages: {listed(made)}",
            (
                Evidence(f"{listed(made)} after the first forward", "none that was not there before", "rank 0"),
                Evidence("no optimizer that is built before the first forward holds them", "", "rank 0"),
            ),
            Fix(
                "make them in __init__, or run one forward before the optimizer and DDP get the model",
                diff=f" def __init__(self):\n+    self.{layer or made[0]} = ...\nor\n model = build_model()\n"
                "+with torch.no_grad():\n+    model(sample_input)\n"
                " optimizer = torch.optim.AdamW(model.parameters())\n model = DDP(model)",
            ),
        )


@watch(StepSampled)
def while_training(event: StepSampled, training: Training) -> Iterator[Finding]:
    """Look at what DDP did not see when it wrapped, and at what has moved since."""
    step = together(event, training)
    if step is None or step.number < SURE or step.by_own_means:
        return
    if apart := strays_apart(step):
        yield _added(event, step, apart, training)
    if event.moved:
        yield Finding(
            f"{counted(len(event.moved), 'parameter')} changed device after DDP wrapped {step.wrapped.kind}: "
            + listed(event.moved),
            (Evidence(listed(event.moved), "the device at the time of wrapping", step.when),),
            Fix("move, then wrap", diff=before_wrapping(training, "model.to(device)")),
            place(step.wrapped.site),
            severity=Severity.WARNING,
        )


@watch(Failed)
def when_ddp_stops(event: Failed, training: Training) -> Iterator[Finding]:
    """Name what DDP waits for in vain because it was frozen or replaced after wrapping."""
    if event.changed and UNUSED in event.text:
        wrapped = training.of(Wrapped, pid=event.pid)
        yield Finding(
            f"DDP waits for {counted(len(event.changed), 'parameter')} that changed after it wrapped the model: "
            + listed(event.changed),
            (
                Evidence(
                    listed(event.changed), "the parameters as they were at the time of wrapping", f"rank {event.rank}"
                ),
                *(Evidence(f"{each.kind} is wrapped", "", str(each.site)) for each in wrapped[-1:]),
            ),
            Fix(
                "freeze and replace first, then wrap",
                diff=before_wrapping(training, "model.backbone.requires_grad_(False)"),
            ),
            place(wrapped[-1].site if wrapped else event.site),
        )


def _added(event: StepSampled, step: Step, apart: Apart, training: Training) -> Finding:
    names = [name for name, _, _ in event.unmanaged]
    why = next(why for name, why, _ in event.unmanaged if name == apart.name)
    frozen = why == "was frozen"
    line = "model.backbone.requires_grad_(True)" if frozen else "model.head = nn.Linear(512, classes)"
    return Finding(
        f"DDP does not average {counted(len(names), 'parameter')} that changed after it wrapped {step.wrapped.kind}: "
        + listed(names),
        (
            apart.evidence("the gradient of", step),
            Evidence(f"{apart.name} {why} when DDP wrapped the model", "as it is now", str(step.wrapped.site)),
        ),
        (frozen_later(training) if frozen else made_later(training))
        or Fix(
            "unfreeze, then wrap" if frozen else "change the model, then wrap it", diff=before_wrapping(training, line)
        ),
        place(step.wrapped.site),
    )


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for parameters that are frozen, or layers that are put in, after DDP has noted what there is."""
    for node in script.tree.nodes:
        match node:
            case ast.For(
                target=ast.Name(id=name),
                iter=ast.Call(func=ast.Attribute(value=model, attr="parameters")),
                body=[ast.Assign(targets=[ast.Attribute(value=ast.Name(id=same), attr="requires_grad")], value=value)],
            ) if name == same:
                is_off = isinstance(value, ast.Constant) and value.value is False and not is_whole(script, model)
                what = "freezes parameters" if is_off else ""
            case ast.Assign(targets=[ast.Attribute(value=ast.Attribute(attr="module") as model)], value=value):
                what = "puts a layer into the model" if is_layer(script, value) else ""
            case _:
                continue
        wrap = wrapped_before(script, model)
        if what and wrap is not None and not wrapped_again(script, node):
            yield Finding(
                f"this {what} after DistributedDataParallel has noted which parameters there are",
                (script.seen(node, "before the model is wrapped"), script.seen(wrap.call)),
                Fix("do it before the model is wrapped"),
                script.place(node),
            )
