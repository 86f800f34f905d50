"""GradScaler's step, unscale_ and update are not called once each, in this order.

## What happens

A GradScaler keeps count of what was done since its last `update()`: each optimizer is unscaled once, and stepped once.
A loop without `scaler.update()` fails in its second step ("step() has already been called since the last update()"),
one that unscales twice at once ("unscale_() has already been called on this optimizer since the last update()"); also
where gradients are accumulated and `unscale_` stands in each micro-batch. Where `optimizer.step()` stands in the place
of `scaler.step(optimizer)`, the weights take steps by gradients that are still multiplied by the scale, and `update()`
is refused: "No inf checks were recorded prior to update"; a second `update()` is as well. Where nothing was scaled
yet, as in the first step after a resume, `unscale_` and `step` find no scale at all: "Attempted unscale_ but _scale is
None".

## How to be sure

The exception says which of them it was, and the traceback has the line.

## How to mend it

    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)           # once for each optimizer, and only to clip
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()                      # once, after the step of the last optimizer

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch/amp/grad_scaler.py, `step`, `unscale_` and `update`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Finding,
    Fix,
    Record,
    Severity,
    calls_at,
    last_name,
    log_pattern,
    tree_of,
)

from ..._scripts.own_files import is_said, own_files

AILMENT = Ailment("DDP580", Severity.ERROR)
ONCE = Fix(
    "unscale, step and update together: each once, in the steps that end an accumulation, and update() also where the "
    "step is left out",
    diff=" scaler.scale(loss / micro_steps).backward()\n+if (batch + 1) % micro_steps == 0:\n"
    "+    scaler.unscale_(optimizer)\n+    if clip_grad_norm_(model.parameters(), 1.0) < limit:\n"
    "+        scaler.step(optimizer)\n+    scaler.update()\n+    optimizer.zero_grad()",
)
BEFORE = (
    "gradients are accumulated: unscale_() comes in each micro-step, and update() only at the end",
    "the step before was left out (a norm too large, NaN), and update() with it",
    "it is called twice in one step: by the script, and by a helper or framework that clips",
)
LOOK = "grep -nE 'unscale_|scaler\\.(step|update)|clip_grad|accum' {file}   # under which test each of them stands"
UPDATE = Fix(
    "call update() after the step of the last optimizer, in each step",
    diff=" scaler.step(optimizer)\n+scaler.update()",
)

UPDATED = re.compile(r"\.update\(\s*(?:\)|new_scale)|getattr\(")
FRAMEWORK = re.compile(
    r"^\s*(?:import|from) (?:accelerate|lightning|pytorch_lightning|transformers|ignite|fastai)", re.MULTILINE
)
"""What makes the step and the update by itself."""

THROUGH = Fix(
    "let the scaler make the step, and update once after it",
    diff="-optimizer.step()\n+scaler.step(optimizer)\n scaler.update()",
)


@log_pattern(r"No inf checks were recorded prior to update")
def without_a_step(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Report an update since whose predecessor the scaler has seen no optimizer."""
    yield Finding(
        "scaler.update() is called, and no optimizer went through scaler.step() since the update before it",
        (record.proof(match, "scaler.step(optimizer), then scaler.update(), each once"),),
        THROUGH,
        record.place,
    )


@log_pattern(
    r"(?P<what>step|unscale_)\(\) (?:has already been called|is being called) (?:on this optimizer )?"
    r"(?:since the last update\(\)|after step\(\))"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Report which of the calls came once too often."""
    step = match["what"] == "step"
    if not step and (unscales := _unscales_alone(record)) is not None:
        yield _never_updated(record, match, unscales)
        return
    yield Finding(
        "scaler.step(optimizer) is called again before scaler.update()"
        if step
        else "scaler.unscale_(optimizer) is called a second time, or after the step, before scaler.update()",
        (record.proof(match, "scale, backward, unscale_, step, update: each once in this order"),),
        UPDATE if step else ONCE,
        record.place,
        ambiguity=None if step else Ambiguity(BEFORE, LOOK.format(file=record.place.file or "train.py")),
    )


@log_pattern(
    r"Attempted (?P<what>\w+) but _?\w+ is None\. {1,2}This may indicate your script did not use scaler\.scale"
)
def without_a_scale(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The scaler makes its scale at its first scale(): nothing went through it in this process."""
    yield Finding(
        f"scaler.{match['what']} is called, and no loss of this process went through scaler.scale() before",
        (record.proof(match, "scaler.scale(loss).backward() first, in this process too after a resume"),),
        Fix(
            "scale the loss of each step, with the very scaler that makes the step",
            diff="-loss.backward()\n+scaler.scale(loss).backward()\n scaler.unscale_(optimizer)",
        ),
        record.place,
    )


def _unscales_alone(record: Record) -> ast.Call | None:
    """Return the call of unscale_ on the line that failed, where no file of the script ever calls update()."""
    file, line = record.place.file or "", record.place.line or 0
    files = own_files(file)
    call = next((each for each in calls_at(file, line) if last_name(each.func) == "unscale_" and each.args), None)
    if call is None or is_said(UPDATED, files) or is_said(FRAMEWORK, files):
        return None
    return call


def _never_updated(record: Record, match: re.Match[str], call: ast.Call) -> Finding:
    """Say what is left out after unscale_(), in the script's own names."""
    scaler, optimizer = ast.unparse(call.func).removesuffix(".unscale_"), ast.unparse(call.args[0])
    stepped = any(
        last_name(each.func) == "step" and each.args
        for file in own_files(record.place.file or "")
        for each in tree_of(file).of(ast.Call)
    )
    calls = f"{scaler}.update()" if stepped else f"{scaler}.step({optimizer}) or {scaler}.update()"
    step = f" {scaler}.step({optimizer})\n" if stepped else f"-{optimizer}.step()\n+{scaler}.step({optimizer})\n"
    return Finding(
        f"{scaler}.unscale_({optimizer}) comes in each step, and nothing calls {calls}",
        (record.proof(match, "scale, backward, unscale_, step, update: each once in this order"),),
        Fix("let the scaler end each step", diff=f"{step}+{scaler}.update()"),
        record.place,
    )
