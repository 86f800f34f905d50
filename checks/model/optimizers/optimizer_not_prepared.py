"""The optimizer steps within accumulate(), on gradients that are not averaged yet: it was not handed to prepare.

## What happens

Within `accelerator.accumulate(model)` DDP averages gradients only with each k-th batch. An optimizer that
`accelerator.prepare` has returned skips its `step()` and `zero_grad()` in between. One that it has not returned steps
with every batch: with each rank's own gradients, which makes the replicas differ for good, and `zero_grad()` throws the
accumulated gradients away.

## How to be sure

Print a parameter's sum on each rank after some batches: they differ. In a running training (`ddpdoctor run`) a step of
torch's optimizer is seen while Accelerate's `sync_gradients` is false; in a source (`ddpdoctor lint`) the optimizer is
in no `prepare` and steps under `accumulate`.

## How to mend it

    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

## Versions and sources

Source: Accelerate documentation, "Performing gradient accumulation", and accelerate/optimizer.py. Seen with accelerate
1.15 and torch 2.13 CPU.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Severity, SteppedUnsynced, lint, place, watch

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP593", Severity.ERROR)


def _mend(name: str) -> Fix:
    return Fix(
        "hand the optimizer to prepare, with the model",
        diff=f"+{name} = accelerator.prepare({name})",
    )


@watch(SteppedUnsynced)
def while_training(event: SteppedUnsynced) -> Iterator[Finding]:
    """Report the line of the step once for the training, by rank 0."""
    if event.rank == 0:
        yield Finding(
            "the optimizer steps between two averagings of gradients: it was not handed to accelerator.prepare",
            (
                Evidence(
                    "a step while Accelerate's sync_gradients is false",
                    f"a step with each {event.steps}. batch" if event.steps > 1 else "a step where it is true",
                    str(event.site),
                ),
            ),
            _mend("optimizer"),
            place(event.site),
        )


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for an optimizer that steps under accumulate(), was made in this file by torch, and is in no prepare."""
    if "accelerate" not in script.imported:
        return
    calls = [node for node in script.nodes(ast.Call) if isinstance(node.func, ast.Attribute)]
    prepares = [each for each in calls if isinstance(each.func, ast.Attribute) and each.func.attr.startswith("prepare")]
    if not prepares or any(isinstance(word, ast.Starred) for each in prepares for word in each.args):
        return
    handed = {each.id for call in prepares for each in ast.walk(call) if isinstance(each, ast.Name)}
    for call in calls:
        match call.func:
            case ast.Attribute(attr="step", value=ast.Name(id=name) as owner) if name not in handed:
                made = script.held(owner)
                is_torchs = isinstance(made, ast.Call) and (script.resolve(made.func) or "").startswith("torch.optim.")
                is_scheduler = is_torchs and ".lr_scheduler." in (script.resolve(made.func) or "")  # type: ignore[union-attr]
                if is_torchs and not is_scheduler and _accumulates(script, call):
                    yield Finding(
                        f"{name} steps within accumulate(), and is in no prepare: it steps with a rank's own gradients",
                        (script.seen(call), script.seen(prepares[0], f"{name} in it")),
                        _mend(name),
                        script.place(call),
                    )


def _accumulates(script: Script, call: ast.Call) -> bool:
    """Whether a call stands in ``with accelerator.accumulate(...)``."""
    return any(
        isinstance(item.context_expr, ast.Call) and ast.unparse(item.context_expr.func).endswith(".accumulate")
        for parent in script.tree.above(call)
        if isinstance(parent, ast.With)
        for item in parent.items
    )
