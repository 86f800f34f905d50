"""An optimizer is stepped beside DeepSpeed's engine, which steps on its own.

## What happens

`engine.step()` averages, clips and unscales gradients, steps the optimizer and clears the gradients. The optimizer that
`deepspeed.initialize` returned, stepped by the script as well, steps twice, or finds no gradients ("'NoneType' object
is not iterable" under ZeRO-2). Another one over the same parameters changes the model behind ZeRO's back, by each
rank's own gradients, until the engine's next step writes its own copy over that.

## How to be sure

In a source (`ddpdoctor lint`): the engine and the optimizer are both stepped, and the optimizer is the one that
initialize returned, or was made of the parameters of the model that initialize was given and was not handed to it.

## How to mend it

Leave the step to the engine, and hand an optimizer of your own to `deepspeed.initialize(optimizer=optimizer)`.

## Versions and sources

Source: DeepSpeed documentation, "Training API"; seen with DeepSpeed 0.19 and torch 2.13 CPU: under ZeRO-2 the step of
the returned optimizer raises, under ZeRO-1 one of its own trains without a word.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Severity, dotted, is_open, keyword, lint

from .._source import target

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP542", Severity.ERROR)


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
                    continue
                for step, name in steps:
                    what = "which engine.step() steps" if name == returned else "which DeepSpeed was not given"
                    yield Finding(
                        f"{name}.step() beside {engine}.step(): {what.replace('engine', engine)}",
                        (script.seen(step, f"{engine}.step() alone"), script.seen(call)),
                        Fix("leave the step to the engine", diff=f"-{script.code(step)}"),
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
    for node in script.nodes(ast.Call):
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr="step")) if name and dotted(owner) == name:
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
