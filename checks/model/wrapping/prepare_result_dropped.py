"""What prepare() or setup() returns is thrown away, or prepare() is given a list, of which it prepares nothing.

## What happens

`accelerator.prepare(model, optimizer, loader)` and Fabric's `setup` and `setup_dataloaders` return the wrapped model
and the loader that gives each rank its share. They do not change what they are given. Where the result is not kept,
each rank trains a bare model of its own, or goes through the whole data set, and nothing raises. They return as many
things as they are given, in this order: `model, optimizer = accelerator.prepare(model, optimizer, loader)` is a
ValueError, "too many values to unpack", on every rank. A list is a thing that Accelerate does not know, and gives back
as it is: `model, optimizer = accelerator.prepare([model, optimizer])` prepares nothing.

## How to be sure

In a source (`ddpdoctor lint`): the call is a statement of its own, or has more or fewer arguments than variables take
what it returns, or a list is the only thing that it is given.

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

from ddpdoctor.check import ACCELERATOR, Ailment, Finding, Fix, Severity, lint

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP595", Severity.ERROR)
OWNERS = {
    ACCELERATOR: {"prepare", "prepare_model", "prepare_data_loader", "prepare_optimizer"},
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


@lint
def taken_apart(script: Script) -> Iterator[Finding]:
    """Look for such a call whose result is taken by more or fewer variables than it returns."""
    for statement in script.nodes(ast.Assign):
        match statement:
            case ast.Assign(
                targets=[ast.Tuple(elts=[*takers]) | ast.List(elts=[*takers])],
                value=ast.Call(func=ast.Attribute(value=owner, attr="prepare" | "setup"), args=[_, _, *_]) as call,
            ):
                given = call.args
                is_open = any(isinstance(each, ast.Starred) for each in (*takers, *given)) or bool(call.keywords)
                made = next((path for path in OWNERS if script.made_by(owner, path)), "")
                if is_open or len(takers) == len(given) or call.func.attr not in OWNERS.get(made, ()):  # type: ignore[attr-defined]
                    continue
                wanted = ", ".join(map(script.code, given))
                few = "too many" if len(given) > len(takers) else "not enough"
                yield Finding(
                    f"{script.code(call.func)} returns {len(given)} things, and {len(takers)} are taken: a ValueError, "
                    f"{few} values to unpack",
                    (script.seen(statement, f"{wanted} = {script.code(call)}"),),
                    Fix("take all that it returns", diff=f"+{wanted} = {script.code(call)}"),
                    script.place(call),
                )


@lint
def given_as_list(script: Script) -> Iterator[Finding]:
    """Look for a list as the only thing that Accelerate is to prepare."""
    for call in script.nodes(ast.Call):
        match call:
            case ast.Call(func=ast.Attribute(value=owner, attr="prepare"), args=[given]):
                things = _listed(script, given)
                if not things or not script.made_by(owner, ACCELERATOR):
                    continue
                right = f"{script.code(call.func)}({things})"
                yield Finding(
                    f"{script.code(call.func)} is given a list, and gives it back as it is: nothing of it is prepared",
                    (script.seen(call, right),),
                    Fix("give each thing by itself", diff=f"-{script.code(call)}\n+{right}"),
                    script.place(call),
                )


def _listed(script: Script, given: ast.expr) -> str:
    """Return what a list or a tuple holds, as arguments; empty where it is none, or not known to be one."""
    if isinstance(given, (ast.List, ast.Tuple)):
        return ", ".join(map(script.code, given.elts))
    held = script.held(given) if isinstance(given, (ast.Name, ast.Attribute)) else given
    return f"*{script.code(given)}" if isinstance(held, (ast.List, ast.Tuple, ast.ListComp)) else ""


def _used(script: Script, names: list[str], call: ast.Call) -> bool:
    """Whether one of the variables is read after the call, in its function."""
    function = script.function(call)
    return any(
        node.lineno > call.lineno and script.function(node) is function
        for name in names
        for node in script.tree.read.get(name, ())
    )
