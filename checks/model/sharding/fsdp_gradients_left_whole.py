"""An optimizer steps while fully_shard keeps gradients of micro-batches that no rank has sent.

## What happens

`model.set_requires_gradient_sync(False)` lets fully_shard keep the gradients of a backward whole, each rank its own;
the next backward with True reduces all that was kept. Where the backward right before `optimizer.step()` is one
without, the step is made with what was reduced before. What was kept stays, `zero_grad()` does not reach it, and it is
added to a later step: gradients come late, of weights that are no more. Nothing fails.

## How to be sure

Print the flag beside each `backward()` and `step()`: the last one before a step is False. ddpdoctor (`ddpdoctor run`)
looks, in compared steps, whether whole gradients are there when the optimizer begins to step. In a source (`ddpdoctor
lint`): what the switch is given is false in the micro-batch that the one step of the function follows.

## How to mend it

The last micro-batch before a step is the one that sends:

    last = (index + 1) % accumulate == 0
    model.set_requires_gradient_sync(last)
    loss_of(model(inputs)).backward()
    if last:
        optimizer.step()
        optimizer.zero_grad()

## Versions and sources

Holds for fully_shard of torch 2.4 and later; seen with torch 2.13 CPU. Source: PyTorch documentation,
FSDPModule.set_requires_gradient_sync; torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, `post_backward`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    FULLY_SHARD,
    Ailment,
    Evidence,
    Finding,
    Fix,
    LeftWhole,
    Place,
    Severity,
    Training,
    last_name,
    lint,
    tree_of,
    watch,
)

from ..accumulation._at_step import holds_at_step, the_step

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP1509", Severity.ERROR)
SURE = 2  # steps
SENDS = Fix(
    "let the last backward before each step send the gradients",
    diff="+last = (index + 1) % accumulate == 0\n+model.set_requires_gradient_sync(last)\n"
    " loss.backward()\n+if last:\n     optimizer.step()",
)


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a test by which gradients are sent, and that does not hold where the optimizer steps."""
    calls = [each for each in script.nodes(ast.Call) if _is_switch(each)] if any(script.calls(FULLY_SHARD)) else []
    for call in calls if len(calls) == 1 else ():
        test, step = call.args[0], the_step(script, call)
        if step is not None and holds_at_step(script, test, step) is False:
            code = script.code(test)
            yield Finding(
                f"gradients are not sent in the micro-batch that {script.code(step)} follows: `{code}` is false there",
                (script.seen(call, "true in the last micro-batch before each step"), script.seen(step)),
                SENDS,
                script.place(call),
            )


@watch(LeftWhole)
def while_training(event: LeftWhole, training: Training) -> Iterator[Finding]:
    """Look for a second step that was made beside gradients that were kept."""
    if event.rank or not event.names or len(list(training.before(event, optimizer=event.optimizer))) != SURE - 1:
        return
    file, line = _switch(event) or ((event.site.file, event.site.line) if event.site else ("", 0))
    more = f" and {event.count - 1} more" if event.count > 1 else ""
    yield Finding(
        f"the optimizer steps without the gradients of the last micro-batches: fully_shard keeps those of "
        f"{event.names[0]}{more} on each rank, unsent",
        (
            Evidence(
                f"step {event.number}: whole gradients of {event.count} parameters are kept beside their shards",
                "none: the last backward before a step sends them",
                str(event.site or ""),
            ),
        ),
        SENDS,
        Place(file=file or None, line=line or None),
    )


def _is_switch(call: ast.Call) -> bool:
    return last_name(call.func) == "set_requires_gradient_sync" and bool(call.args)


def _switch(event: LeftWhole) -> tuple[str, int] | None:
    """Return the one line of the file that switches the exchange of gradients."""
    if event.site is None:
        return None
    lines = {
        node.lineno
        for node in tree_of(event.site.file).of(ast.Call)
        if ast.unparse(node.func).endswith("set_requires_gradient_sync")
    }
    return (event.site.file, lines.pop()) if len(lines) == 1 else None
