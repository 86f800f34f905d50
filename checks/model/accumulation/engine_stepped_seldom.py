"""The script calls engine.step() once in k batches, and DeepSpeed's engine counts k such calls itself.

## What happens

With `gradient_accumulation_steps: k` the engine is to be told of each batch: `engine.step()` counts the calls, and
changes the model with each k-th. A script that calls it for each k-th batch only, as with plain torch, changes the
model once in k times k batches. Each of these updates has the gradients of all of them, k times too large.

A script that calls it only where `engine.is_gradient_accumulation_boundary()` is true calls it never: the engine comes
nearer to the boundary with each call of `engine.step()`, and with nothing else. The loss is computed, and the weights
stay as they are.

## How to be sure

Compare `engine.global_steps` with the batches. In a running training (`ddpdoctor run`) there were k backwards for each
call of `engine.step()`, and one update for k of the calls; or the script has asked for the boundary over and over, and
there was no call at all. In a source (`ddpdoctor lint`) the step stands behind a remainder by the engine's own number
of steps, or behind the boundary, and the backward does not.

## How to mend it

    for inputs, targets in loader:
        loss = engine(inputs, targets)
        engine.backward(loss)
        engine.step()          # with each batch: the engine knows when the k-th has come

## Versions and sources

Source: DeepSpeed documentation, "Training API"; deepspeed/runtime/engine.py, `step` and
`is_gradient_accumulation_boundary`. Seen with DeepSpeed 0.19 and torch 2.13 CPU.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    EngineBoundaryAwaited,
    EngineSteppedSeldom,
    Evidence,
    Finding,
    Fix,
    Severity,
    dotted,
    lint,
    place,
    watch,
)

from ..._scripts.source import engine_of

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP1563", Severity.ERROR)
MEND = Fix(
    "call engine.step() with each batch: the engine knows when the last of them has come",
    diff="-if (step + 1) % accumulation == 0:\n-    engine.step()\n+engine.step()",
)
MEND_OF_BOUNDARY = Fix(
    "call engine.step() with each batch: the engine knows when the last of them has come",
    diff="-if engine.is_gradient_accumulation_boundary():\n-    engine.step()\n+engine.step()",
)
STEPS = "gradient_accumulation_steps"


@watch(EngineSteppedSeldom)
def while_training(event: EngineSteppedSeldom) -> Iterator[Finding]:
    """Report it once for the training, by rank 0."""
    if event.rank == 0:
        yield Finding(
            f"engine.step() is called once in {event.every} batches, and the engine waits for {event.every} such "
            f"calls: one update in {event.every**2} batches",
            (
                Evidence(
                    f"{event.backwards} calls of engine.backward(), {event.steps} of engine.step(), "
                    f"{event.updates} updates",
                    f"as many of the one as of the other, an update for each {event.every}",
                    "rank 0",
                ),
            ),
            MEND,
            place(event.site),
        )


@watch(EngineBoundaryAwaited)
def that_never_comes(event: EngineBoundaryAwaited) -> Iterator[Finding]:
    """Report it once for the training, by rank 0."""
    if event.rank == 0:
        yield Finding(
            "engine.step() waits for engine.is_gradient_accumulation_boundary(), which only the calls of engine.step() "
            "bring nearer: the weights never change",
            (
                Evidence(
                    f"asked {event.asked} times, False each time, and no call of engine.step()",
                    f"a call with each batch: each {event.every}th updates the model",
                    "rank 0",
                ),
            ),
            MEND_OF_BOUNDARY,
            place(event.site),
        )


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a step behind a remainder by the engine's own number, with a backward that is not behind it."""
    for call in script.calls("deepspeed.initialize"):
        engine = engine_of(script, call)
        for node in script.nodes(ast.If):
            remainder, boundary = f"% {engine}.{STEPS}() == 0", f"{engine}.is_gradient_accumulation_boundary()"
            said = ast.unparse(node.test)
            steps = [each for each in ast.walk(node) if isinstance(each, ast.Call) and _is(each, engine, "step")]
            within = any(isinstance(each, ast.Call) and _is(each, engine, "backward") for each in ast.walk(node))
            if not engine or not steps or within or node.orelse:
                continue
            if remainder in said or said == boundary:
                yield Finding(
                    f"{engine}.step() stands behind the remainder that the engine looks at itself: "
                    "an update once in k times k batches"
                    if remainder in said
                    else f"{engine}.step() waits for a boundary of accumulation that its own calls alone bring nearer: "
                    f"where {STEPS} is more than 1 the weights never change",
                    (script.seen(node.test, "a step with each batch"), script.seen(steps[0])),
                    MEND if remainder in said else MEND_OF_BOUNDARY,
                    script.place(steps[0]),
                )


def _is(call: ast.Call, owner: str, method: str) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == method and dotted(call.func.value) == owner
