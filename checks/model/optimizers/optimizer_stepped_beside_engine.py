"""An optimizer is stepped beside DeepSpeed's engine, which steps on its own.

## What happens

`engine.step()` averages, clips and unscales gradients, steps the optimizer and clears the gradients. The optimizer that
`deepspeed.initialize` returned, stepped by the script as well, steps twice, or finds no gradients ("'NoneType' object
is not iterable" under ZeRO-2). Another one over the same parameters changes the model behind ZeRO's back, by each
rank's own gradients, until the engine's next step writes its own copy over that.

## How to be sure

In a source (`ddpdoctor lint`): the engine and the optimizer are both stepped, and the optimizer is the one that
initialize returned, or was made of the parameters of the model that initialize was given and was not handed to it; or
the engine makes the backwards, and the optimizer all of the steps. In a running training (`ddpdoctor run`): the engine
made several backwards and no step, and the script stepped the engine's optimizer. In a log: ZeRO's optimizer is
stepped by a line of the script's own, and has no averaged gradients any more.

## How to mend it

Leave the step to the engine, and hand an optimizer of your own to `deepspeed.initialize(optimizer=optimizer)`:

    engine.backward(loss)
    engine.step()

## Versions and sources

Source: DeepSpeed documentation, "Training API"; seen with DeepSpeed 0.19 and torch 2.13 CPU: under ZeRO-2 the step of
the returned optimizer raises, under ZeRO-1 one of its own trains without a word.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    EngineNotStepped,
    Evidence,
    Finding,
    Fix,
    Record,
    Severity,
    dotted,
    is_open,
    keyword,
    lint,
    log_pattern,
    place,
    watch,
)

from ..._scripts.source import taken_out, target

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP542", Severity.ERROR)
IN_PLACE = Fix(
    "step the engine, which steps the optimizer", diff="-optimizer.step()\n-optimizer.zero_grad()\n+engine.step()"
)
NORMS = {"get_grad_norm_direct", "_get_norm_groups"}
"""Of ZeRO's optimizers: what reads the averaged gradients that the engine's step has cleared."""


@log_pattern(r"TypeError: 'NoneType' object is not iterable|KeyError: 0\b")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Look for a step of ZeRO's optimizer that comes of the script's own line, and not of the engine's step."""
    called = [each.function for each in record.frames if "deepspeed" in each.file]
    if NORMS & set(called[-2:]) and called[0] == "step" and "_take_model_step" not in called and record.users:
        yield Finding(
            "the script steps the optimizer of DeepSpeed's engine, which engine.step() has stepped already",
            (record.proof(match, "engine.step() alone"),),
            Fix("leave the step to the engine", diff="-optimizer.step()\n engine.step()"),
            record.place,
        )


@watch(EngineNotStepped)
def while_training(event: EngineNotStepped) -> Iterator[Finding]:
    """Report it once for the training, by rank 0."""
    if event.rank == 0:
        zero = f" under ZeRO {event.stage}" if event.stage else ""
        yield Finding(
            f"{event.optimizer}.step() in place of engine.step(), which averages, clips and steps{zero}",
            (
                Evidence(
                    f"{event.backwards} calls of engine.backward(), none of engine.step()",
                    "engine.step() after each",
                    "rank 0",
                ),
                Evidence(f"{event.optimizer}.step() by the script", "", str(event.site)),
            ),
            IN_PLACE,
            place(event.site),
        )


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for the two steps."""
    for call in script.calls("deepspeed.initialize"):
        match script.tree.parents.get(call):
            case ast.Assign(targets=[ast.Tuple(elts=[first, *rest])]) if rest and not is_open(call):
                engine, returned = dotted(first) or "", dotted(rest[0]) or ""
                names = {returned, *_own(script, call)} - {"", "_", "__"}
                steps = [(node, name) for name in sorted(names) if (node := _stepped(script, name, call)) is not None]
                if _stepped(script, engine, call) is None:
                    yield from _in_its_place(script, call, engine, returned)
                    continue
                for step, name in steps:
                    what = "which engine.step() steps" if name == returned else "which DeepSpeed was not given"
                    yield Finding(
                        f"{name}.step() beside {engine}.step(): {what.replace('engine', engine)}",
                        (script.seen(step, f"{engine}.step() alone"), script.seen(call)),
                        Fix(
                            "leave the step to the engine",
                            diff=f"-{script.code(step)}",
                            edits=taken_out(script, step),
                        ),
                        script.place(step),
                    )


def _in_its_place(script: Script, call: ast.Call, engine: str, returned: str) -> Iterator[Finding]:
    """Look for an optimizer of the engine's that makes the steps, where the engine makes the backwards."""
    given = keyword(call, "optimizer")
    names = {returned, (dotted(given) or "") if given is not None else ""} - {"", "_", "__"}
    backward = _called(script, engine, call, "backward")
    for name in sorted(names) if backward is not None else ():
        if (step := _stepped(script, name, call)) is not None:
            yield Finding(
                f"{name}.step() in place of {engine}.step(), which averages, clips and steps, and never runs",
                (script.seen(step, f"{engine}.step()"), script.seen(call)),
                IN_PLACE
                if step.args or step.keywords
                else replace(IN_PLACE, edits=(script.replaced(step, f"{engine}.step()"),)),
                script.place(step),
            )


def _own(script: Script, call: ast.Call) -> Iterator[str]:
    """Yield the names of torch's optimizers of the engine's model, that the engine was not given."""
    model = keyword(call, "model")
    handed = {dotted(each) for each in ast.walk(call) if isinstance(each, (ast.Name, ast.Attribute))}
    for path, calls in script.all_calls().items():
        for made in calls if path.startswith("torch.optim.") and isinstance(model, ast.Name) else ():
            name = target(script, made)
            given = ast.unparse(made.args[0]) if made.args else ""
            if name and name not in handed and isinstance(model, ast.Name) and given == f"{model.id}.parameters()":
                yield name


def _stepped(script: Script, name: str, near: ast.Call) -> ast.Call | None:
    """Return where what a name, or an attribute of ``self``, holds is stepped."""
    return _called(script, name, near, "step")


def _called(script: Script, name: str, near: ast.Call, method: str) -> ast.Call | None:
    """Return where a method is called of what a name, or an attribute of ``self``, holds."""
    for node in script.nodes(ast.Call):
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr=attr)) if attr == method and dotted(owner) == name != "":
                if isinstance(owner, ast.Attribute):
                    within = name.startswith("self.") and script.tree.class_of(node) is script.tree.class_of(near)
                    is_one = within and _stores(script, name) == 1
                else:
                    near_enough = script.function(node) in {None, script.function(near)}
                    is_one = near_enough and len(script.tree.lookup(name, node)) == 1
                if is_one:
                    return node
    return None


def _stores(script: Script, name: str) -> int:
    """Count how often a file stores something in an attribute of this name."""
    stored = (each for each in script.nodes(ast.Attribute) if isinstance(each.ctx, ast.Store))
    return sum(dotted(each) == name for each in stored)
