"""What prepare() or setup() returns is thrown away: the training goes on with what was handed to it.

## What happens

`accelerator.prepare(model, optimizer, loader)` and Fabric's `setup` and `setup_dataloaders` return the wrapped model
and the loader that gives each rank its share. They do not change what they are given. Where the result is not kept,
each rank trains a bare model of its own, or goes through the whole data set, and nothing raises.

## How to be sure

In a source (`ddpdoctor lint`): the call is a statement of its own.

## How to mend it

    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    model, optimizer = fabric.setup(model, optimizer)
    loader = fabric.setup_dataloaders(loader)

## Versions and sources

Source: Accelerate documentation, "Accelerator.prepare"; Lightning Fabric documentation, "Fabric.setup". Seen with
accelerate 1.15, Lightning 2.6 and torch 2.13 CPU.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Severity, lint

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP595", Severity.ERROR)
OWNERS = {
    "accelerate.Accelerator": {"prepare", "prepare_model", "prepare_data_loader", "prepare_optimizer"},
    "accelerate.accelerator.Accelerator": {"prepare", "prepare_model", "prepare_data_loader", "prepare_optimizer"},
    "lightning.fabric.Fabric": {"setup", "setup_module", "setup_dataloaders"},
    "lightning.Fabric": {"setup", "setup_module", "setup_dataloaders"},
    "lightning_fabric.Fabric": {"setup", "setup_module", "setup_dataloaders"},
}


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for such a call whose result nobody takes, given names that the file reads afterwards."""
    for statement in script.nodes(ast.Expr):
        match statement.value:
            case ast.Call(func=ast.Attribute(value=owner, attr=method), args=[*args], keywords=[]) as call if args:
                made = next((path for path in OWNERS if script.made_by(owner, path)), "")
                names = [each.id for each in args if isinstance(each, ast.Name)]
                if method not in OWNERS.get(made, ()) or len(names) < len(args) or not _used(script, names, call):
                    continue
                kept = ", ".join(names)
                right = f"{kept} = {script.code(call)}"
                yield Finding(
                    f"what {script.code(call.func)} returns is thrown away: {kept} stay as they were",
                    (script.seen(call, right),),
                    Fix("keep what it returns", edits=(script.replaced(call, right),)),
                    script.place(call),
                )


def _used(script: Script, names: list[str], call: ast.Call) -> bool:
    """Whether one of the variables is read after the call, in its function."""
    function = script.function(call)
    return any(
        node.lineno > call.lineno and script.function(node) is function
        for name in names
        for node in script.tree.read.get(name, ())
    )
