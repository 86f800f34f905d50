"""Accelerate is told to accumulate gradients, and accumulate() is never entered.

## What happens

`Accelerator(gradient_accumulation_steps=4)` makes `accelerator.backward(loss)` divide the loss by 4. That the optimizer
steps only with each fourth batch is the work of `with accelerator.accumulate(model)`. Without it each batch makes a
step, with gradients that are a quarter of what they should be: nothing is accumulated, and with SGD the learning rate
is a quarter of the one that was set.

## How to be sure

Count the steps of the optimizer: as many as batches. In a running training (`ddpdoctor run`) Accelerate's backwards
and the optimizer's steps are counted until twice as many batches as are to be accumulated; in a source (`ddpdoctor
lint`) the number is a literal, and nothing in the project's reach accumulates.

## How to mend it

    for inputs, targets in loader:
        with accelerator.accumulate(model):
            loss = criterion(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()

## Versions and sources

Source: Accelerate documentation, "Performing gradient accumulation". Seen with accelerate 1.15 and torch 2.13 CPU.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    ACCELERATOR,
    AccumulationUnused,
    Ailment,
    Evidence,
    Finding,
    Fix,
    Severity,
    is_open,
    keyword,
    lint,
    place,
    watch,
)

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP592", Severity.WARNING)
BY_OTHERS = r"accumulat\w*\(|no_sync\(|sync_gradients|\s%\s|_do_sync"
"""What says that somebody accumulates, with Accelerate's means or his own."""
MEND = Fix(
    "enter accumulate() for each batch",
    diff=" for inputs, targets in loader:\n+    with accelerator.accumulate(model):\n"
    "         loss = criterion(model(inputs), targets)\n         accelerator.backward(loss)\n"
    "         optimizer.step()\n         optimizer.zero_grad()",
)


@watch(AccumulationUnused)
def while_training(event: AccumulationUnused) -> Iterator[Finding]:
    """Report it once for the training, by rank 0."""
    if event.rank == 0:
        yield Finding(
            f"accelerate's accumulate() is never entered: each batch makes a step, its loss divided by {event.steps}",
            (
                Evidence(
                    f"{event.backwards} backwards of Accelerate, and as many steps of an optimizer",
                    f"a step for each {event.steps} backwards",
                    f"rank {event.rank}",
                ),
                Evidence(f"gradient_accumulation_steps={event.steps}", "", "Accelerator"),
            ),
            MEND,
            place(event.site),
        )


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for an Accelerator that is told to accumulate, in a file that calls its backward and never accumulates."""
    for call in script.calls(ACCELERATOR):
        steps = keyword(call, "gradient_accumulation_steps")
        if is_open(call) or not (isinstance(steps, ast.Constant) and isinstance(steps.value, int) and steps.value > 1):
            continue
        backwards = [
            node
            for node in script.nodes(ast.Call)
            if isinstance(node.func, ast.Attribute)
            and node.func.attr == "backward"
            and script.made_by(node.func.value, ACCELERATOR)
            and _steps_with_it(script, node)
        ]
        if backwards and not project.does(BY_OTHERS):
            yield Finding(
                f"accelerate's accumulate() is never entered: each batch makes a step, its loss over {steps.value}",
                (script.seen(call), script.seen(backwards[0], "within accelerator.accumulate(model)")),
                MEND,
                script.place(call),
            )


def _steps_with_it(script: Script, backward: ast.Call) -> bool:
    """Whether something steps in the block in which a backward stands, each time that this is reached."""
    statement = next((each for each in script.tree.above(backward) if isinstance(each, ast.stmt)), None)
    for each in script.tree.block(statement) if statement is not None else ():
        match each:
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="step"))):
                return True
    return False
