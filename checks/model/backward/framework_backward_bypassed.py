"""backward() is called on the loss itself, past the framework that prepared the model.

## What happens

Accelerate and DeepSpeed have a backward of their own. `accelerator.backward(loss)` scales the loss for float16, divides
it by the steps of accumulation and hands it to DeepSpeed; `engine.backward(loss)` does all of ZeRO's work.
`loss.backward()` leaves that out: with float16 gradients underflow to zero, with accumulation they are k times too
large. DeepSpeed 0.19 takes plain backward under ZeRO, unscaled and undivided, and raises without ZeRO; with bfloat16 or
float32 and no accumulation nothing is lost there. Older versions fail in the hook of the first gradient, which uses
what `engine.backward` sets up: "'DeepSpeedZeroOptimizer' object has no attribute 'ipg_index'".

Lightning's manual optimization needs `self.manual_backward(loss)`: without it DDP averages no gradient.

## How to be sure

In a running training (`ddpdoctor run`) the first backwards are looked at: the user's code calls one itself, of a model
that Accelerate has wrapped and with accumulation or float16, or in a LightningModule without automatic optimization.

In a source (`ddpdoctor lint`): an engine of `deepspeed.initialize` makes the steps, or the file makes an Accelerator
with float16 or accumulation, and no file in reach calls the framework's backward; or a subclass of the transformers
Trainer has a `training_step` of its own that divides the loss by nothing.

## How to mend it

    accelerator.backward(loss)      # Accelerate
    self.manual_backward(loss)      # Lightning
    engine.backward(loss)           # DeepSpeed

## Versions and sources

Sources: Accelerate documentation, "Accelerator.backward"; DeepSpeed documentation, "Training API", and
deepspeed/runtime/engine.py, `_backward_prologue`. Holds for torch 2.2 to 2.13 with accelerate 0.20 to 1.15 and
Lightning 2; seen with accelerate 1.15, Lightning 2.6, and DeepSpeed 0.19, where ZeRO-1 in float32 learns alike. The
hook's error: deepspeedai/DeepSpeed#6995.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    ACCELERATOR,
    Ailment,
    BackwardBypassed,
    Evidence,
    Finding,
    Fix,
    Record,
    Severity,
    keyword,
    lint,
    log_pattern,
    place,
    watch,
)

from ..._scripts.source import engine_of

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP554", Severity.ERROR)

UNDIVIDED = "the loss is neither scaled nor divided by gradient_accumulation_steps; without ZeRO it raises"


@watch(BackwardBypassed)
def while_training(event: BackwardBypassed) -> Iterator[Finding]:
    """Name the line that passes by the framework, unless the file divides the loss by itself."""
    if event.site is None or ("divided" in event.left_out and _divides(event.site.file)):
        return
    yield Finding(
        f"backward() is called on the loss itself, past {event.framework}: {event.left_out}",
        (
            Evidence(f"backward() called in {event.site.function}", event.right, str(event.site)),
            Evidence(f"{event.framework} has wrapped the model", "", f"rank {event.rank}"),
        ),
        Fix(f"let {event.framework} call it", diff=f"-loss.backward()\n+{event.right}"),
        place(event.site),
    )


def _divides(file: str) -> bool:
    """Whether a file divides something that is a loss, or divides by something about accumulation."""
    try:
        text = Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    return re.search(r"loss\w*\)?\s*(?:/|\*|\.div)|/=?\s*[\w.]*(?:accum|steps|num_micro)", text) is not None


@log_pattern(r"'DeepSpeedZeroOptimizer' object has no attribute 'ipg_\w+'")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The hook of a gradient finds nothing of what the engine's backward sets up."""
    yield Finding(
        "a gradient reaches ZeRO's hooks, and engine.backward() has not begun: the backward was called past the engine",
        (record.proof(match, "engine.backward(loss), which sets up the buckets of gradients"),),
        Fix(
            "let the engine call it", diff="-loss.backward()\n+engine.backward(loss)\n-optimizer.step()\n+engine.step()"
        ),
        record.place,
    )


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for the backward of a plain loss in a training that a framework prepared."""
    owner = _owner(script)
    if owner is None or "GradScaler" in script.text or project.says(r"\w\.backward\(\s*\w"):
        return
    for node in script.nodes(ast.Call):
        match node:
            case ast.Call(func=ast.Attribute(attr="backward", value=ast.Name(id=loss)), args=[]):
                if "loss" not in loss.lower():
                    continue
                right = f"{owner.name}.backward({loss})"
                yield Finding(
                    f"{loss}.backward() passes by {owner.framework}: {owner.what}",
                    (script.seen(node, right), script.seen(owner.call)),
                    Fix("let the framework call it", edits=(script.replaced(node, right),)),
                    script.place(node),
                    severity=owner.severity,
                )


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose backward it is: the name of the object, the call that made it, and what is left out."""

    framework: str
    name: str
    call: ast.Call
    what: str
    severity: Severity = Severity.ERROR


def _owner(script: Script) -> Owner | None:
    for call in script.calls("deepspeed.initialize"):
        name = engine_of(script, call)
        if name.isidentifier() and f"{name}.step(" in script.text:
            return Owner("DeepSpeed", name, call, UNDIVIDED, Severity.WARNING)
    for call in script.calls(ACCELERATOR):
        what = _what(call)
        match script.tree.parents.get(call):
            case ast.Assign(targets=[ast.Name(id=name)]) if what and f"{name}.prepare(" in script.text:
                return Owner("Accelerate", name, call, what)
    return None


def _what(call: ast.Call) -> str:
    precision, steps = keyword(call, "mixed_precision"), keyword(call, "gradient_accumulation_steps")
    if isinstance(precision, ast.Constant) and precision.value == "fp16":
        return "the loss is not scaled for float16"
    if isinstance(steps, ast.Constant) and isinstance(steps.value, int) and steps.value > 1:
        return f"it is not divided by the {steps.value} steps of accumulation"
    return ""


TRAINERS = ("transformers.Trainer", "transformers.Seq2SeqTrainer")
STEPS = "gradient_accumulation_steps"


@lint
def of_the_trainer(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a training_step of the script's own, where the training accumulates."""
    accumulates = any(_accumulates(each) for each in script.calls("transformers.TrainingArguments"))
    for node in script.nodes(ast.ClassDef) if accumulates or project.in_launches(STEPS) else ():
        if not any(script.resolve(base) in TRAINERS for base in node.bases):
            continue
        for method in node.body:
            code = ast.unparse(method) if isinstance(method, ast.FunctionDef) and method.name == "training_step" else ""
            if not code or STEPS in code or "super()" in code or "accelerator.backward(" in code:
                continue
            for call in (each for each in ast.walk(method) if isinstance(each, ast.Call)):
                match call:
                    case ast.Call(func=ast.Attribute(attr="backward", value=ast.Name(id=loss)), args=[]):
                        right = f"self.accelerator.backward({loss} / self.args.{STEPS})"
                        yield Finding(
                            f"{loss}.backward() passes by the transformers Trainer, which divides by {STEPS}",
                            (script.seen(call, right), script.seen(node)),
                            Fix("divide the loss, and have Accelerate call it", edits=(script.replaced(call, right),)),
                            script.place(call),
                        )


def _accumulates(call: ast.Call) -> bool:
    steps = keyword(call, STEPS)
    return isinstance(steps, ast.Constant) and isinstance(steps.value, int) and steps.value > 1
