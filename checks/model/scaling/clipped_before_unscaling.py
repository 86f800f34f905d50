"""Gradients are clipped while the factor of the GradScaler is still in them.

## What happens

`scaler.scale(loss).backward()` leaves gradients that are thousands of times too large; `scaler.step(optimizer)` divides
them again. `clip_grad_norm_` in between sees the scaled ones: their norm is above the limit in every step, and what is
left after dividing is thousands of times too small. The model hardly learns; nothing fails.

## How to be sure

ddpdoctor takes note of what `clip_grad_norm_` computed, and whether `scaler.step` of the same optimizer was still to
unscale. By hand: the norm that `clip_grad_norm_` returns is about `scaler.get_scale()` times what is usual.

In a source (`ddpdoctor lint`): `clip_grad_norm_` stands between `scaler.scale(...).backward()` and `scaler.step(...)`,
and the file has no `unscale_`.

## How to mend it

    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()

## Versions and sources

Seen with torch 2.6 and later; the rule holds for all. Source: PyTorch documentation, "Automatic Mixed Precision
examples", gradient clipping.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    CLIP_NORM,
    Ailment,
    Evidence,
    Finding,
    Fix,
    ScaledClipped,
    Severity,
    Training,
    lint,
    place,
    watch,
)

from ._scalers import calls_of_scalers

if TYPE_CHECKING:
    from ddpdoctor.check import Edit, Script

AILMENT = Ailment("DDP579", Severity.ERROR)
SURE = 2  # times
FIX = Fix(
    "unscale the gradients before they are clipped",
    diff=" scaler.scale(loss).backward()\n+scaler.unscale_(optimizer)\n"
    " torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)\n scaler.step(optimizer)",
)


@watch(ScaledClipped)
def while_training(event: ScaledClipped, training: Training) -> Iterator[Finding]:
    """Report it once it has happened twice."""
    told = training.of(ScaledClipped, pid=event.pid)
    if len(told) < SURE or told[SURE - 1] is not event:
        return
    yield Finding(
        f"gradients are clipped to {event.most:g} while they are still {event.scale:g} times too large",
        (
            Evidence(
                f"clip_grad_norm_ saw a norm of {event.norm:.4g}",
                f"{event.norm / event.scale:.4g}, after scaler.unscale_(optimizer)",
                f"rank {event.rank}",
            ),
            Evidence("scaler.step(optimizer) has unscaled them only afterwards", "before clipping", str(event.site)),
        ),
        FIX,
        place(event.site),
    )


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a clipping between the scaled backward and the scaler's step of one block."""
    if any(isinstance(node.func, ast.Attribute) and node.func.attr == "unscale_" for node in script.nodes(ast.Call)):
        return
    for call in script.calls(CLIP_NORM):
        statement = script.tree.statement(call)
        block = script.tree.block(statement) if statement is not None else []
        if statement is None or statement not in block:
            continue
        at = block.index(statement)
        before = [node for each in block[:at] for node in calls_of_scalers(script, each, "scale", switched=True)]
        after = [node for each in block[at + 1 :] for node in calls_of_scalers(script, each, "step", switched=True)]
        if before and after and not _by_scale(call):
            yield Finding(
                "gradients are clipped before they are unscaled: the limit holds for the scaled ones",
                (script.seen(call, "scaler.unscale_(optimizer) before it"), script.seen(after[0])),
                replace(FIX, edits=_unscaled(script, statement, after[0])),
                script.place(call),
            )


def _unscaled(script: Script, statement: ast.stmt, step: ast.Call) -> tuple[Edit, ...]:
    """Return the edit that unscales before a clipping what the scaler steps after it."""
    match step:
        case ast.Call(func=ast.Attribute(value=scaler), args=[ast.Name() | ast.Attribute() as optimizer, *_]):
            return (script.line_before(statement, f"{script.code(scaler)}.unscale_({script.code(optimizer)})"),)
    return ()


def _by_scale(call: ast.Call) -> bool:
    return "scale" in " ".join(ast.unparse(each) for each in (*call.args[1:], *call.keywords))
