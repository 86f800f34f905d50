"""Accelerate's load_state comes before prepare: no weights are loaded, and nothing says so.

## What happens

`accelerator.load_state(folder)` gives the states of a folder to the models, optimizers, schedules and loaders that
`accelerator.prepare()` was handed before. Where it was handed none yet, there is nobody to give them to: the call
returns without an error, and the training that was to be resumed begins with new weights, at the epoch and the step
of the old one.

## How to be sure

Compare a weight with that of the checkpoint after both calls:

    print(accelerator.unwrap_model(model).state_dict()[name].flatten()[:3])

In a source (`ddpdoctor lint`): `load_state` of an Accelerator, or a helper that it is handed to, is called in a
function above the first `prepare`, on every way.

## How to mend it

    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    accelerator.load_state(folder)

## Versions and sources

Source: Accelerate documentation, "Checkpointing", and the source of `Accelerator.load_state`. Seen with accelerate 1.15
and torch 2.13 CPU.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import ACCELERATOR, Ailment, Finding, Fix, Severity, lint

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP860", Severity.ERROR)
PREPARES = {"prepare", "prepare_model", "prepare_optimizer", "prepare_data_loader", "prepare_scheduler"}


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a state that is loaded in a function before anything is prepared there, or in the file above it."""
    if not script.calls(ACCELERATOR):
        return
    prepared = [each for each in script.nodes(ast.Call) if _is_of(script, each, PREPARES)]
    for call in script.nodes(ast.Call):
        if not (_is_of(script, call, {"load_state"}) or _hands_on(script, call)):
            continue
        reached = [each for each in prepared if not _are_apart(script, each, call)]
        own = [each for each in reached if script.function(each) is script.function(call)]
        if len(own) < len(reached) or not own or any(each.lineno <= call.lineno for each in own):
            continue  # another function can have prepared them
        if any(
            isinstance(each, (ast.For, ast.While)) and each in script.tree.above(own[0])
            for each in script.tree.above(call)
        ):
            continue  # so can the round before
        prepares = next((each for each in script.tree.above(own[0]) if isinstance(each, ast.Assign)), own[0])
        yield Finding(
            f"{script.code(call.func)} loads nothing: what it is to fill is prepared below",
            (script.seen(call, "after prepare()"), script.seen(own[0])),
            Fix(
                "prepare first, then load", diff=f"-{script.code(call)}\n {script.code(prepares)}\n+{script.code(call)}"
            ),
            script.place(call),
        )


def _are_apart(script: Script, one: ast.Call, other: ast.Call) -> bool:
    """Whether who comes to one of two lines of a function does not come to the other, in no round of a loop."""
    loops = [each for each in script.tree.above(one) if isinstance(each, (ast.For, ast.While))]
    if script.function(one) is not script.function(other) or any(each in loops for each in script.tree.above(other)):
        return False
    answers = {id(each.test): each.holds for each in script.guards(one)}
    return any(answers.get(id(each.test), each.holds) is not each.holds for each in script.guards(other))


def _is_of(script: Script, call: ast.Call, methods: set[str]) -> bool:
    """Whether a call is one of these methods of an Accelerator."""
    function = call.func
    if not isinstance(function, ast.Attribute) or function.attr not in methods:
        return False
    return script.made_by(function.value, ACCELERATOR) is not None


def _hands_on(script: Script, call: ast.Call) -> bool:
    """Whether a call hands an Accelerator to a function of the project that loads its state, and prepares nothing."""
    given = [each for each in call.args if isinstance(each, ast.Name)]
    handed = [each for each in given if script.made_by(each, ACCELERATOR) is not None]
    found = script.defined(call.func) if len(handed) == 1 else None
    if found is None or not isinstance(found[1], ast.FunctionDef) or any(isinstance(a, ast.Starred) for a in call.args):
        return False
    place, parameters = call.args.index(handed[0]), found[1].args.args
    name = parameters[place].arg if place < len(parameters) else ""
    asked = {
        node.func.attr
        for node in ast.walk(found[1])
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == name
    }
    return "load_state" in asked and not asked & PREPARES
