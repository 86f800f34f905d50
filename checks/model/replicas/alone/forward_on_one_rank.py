"""One rank alone calls the forward of the wrapped model.

## What happens

The forward of DistributedDataParallel can communicate: it sends the buffers (BatchNorm) from rank 0, and with gradients
it prepares their reduction. Under `if rank == 0`, rank 0 begins a collective that the others are not in. With a barrier
after it, or with gradients, it hangs; right after the first step it ends in a mismatch of collectives.

## How to be sure

`ddpdoctor run` names the line that rank 0 waits in. In a source (`ddpdoctor lint`): the call stands where one rank
alone comes, gradients are on or a collective of all ranks follows, and the model holds BatchNorm or keeps gradients.

## How to mend it

Call what is wrapped, `model.module(inputs)`, on that rank, or evaluate on all ranks.

## Versions and sources

Measured with torch 2.13, gloo, 2 ranks: with BatchNorm and no_grad a barrier after it hangs; with gradients it hangs.
Source: torch/nn/parallel/distributed.py, `_pre_forward`. Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    ACCELERATOR,
    COLLECTIVES,
    DDP,
    OTHER_RANKS,
    Ailment,
    Evidence,
    Finding,
    Fix,
    Severity,
    lint,
)

from ._forwarded import Forwarded, forwarded

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP551", Severity.ERROR)
OFF = ("no_grad", "inference_mode", "set_grad_enabled(False)")


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a forward of the wrapper behind a test that one rank passes, with gradients or a collective after it."""
    for call in script.nodes(ast.Call) if script.calls(DDP) else ():
        if not isinstance(call.func, (ast.Name, ast.Attribute)):
            continue
        guard = script.one_rank_guard(call)
        wrap = script.wrap(call.func) if guard is not None else None
        if guard is None or wrap is None or not wrap.sure or wrap.kind != "DistributedDataParallel":
            continue
        if _others_call(script, call) or not (_backward(script, call) or _hangs(script, call)):
            continue
        right = f"{script.code(call.func)}.module"
        yield Finding(
            f"one rank alone calls {script.code(call.func)}, the DistributedDataParallel of line {wrap.line}: it waits "
            "for the others",
            (script.seen(call, f"{right}(...)"), script.seen(guard.test)),
            Fix("train on all ranks")
            if _backward(script, call)
            else Fix("call what is wrapped", edits=(script.replaced(call.func, right),)),
            script.place(call),
        )


@lint
def by_a_helper(script: Script) -> Iterator[Finding]:
    """Look for a helper that one rank alone has call the wrapper, with a collective of all ranks after it."""
    for found in forwarded(script) if script.calls(DDP) else ():
        if _others_call(script, found.call) or not _hangs(script, found.call):
            continue
        model = script.code(found.model)
        yield Finding(
            f"one rank alone has {script.code(found.call.func)} call {model}, the DistributedDataParallel of line "
            f"{found.wrap.line}: it waits for the others",
            (
                script.seen(found.call),
                script.seen(found.guard.test),
                Evidence(
                    " ".join(ast.unparse(found.forward).split()), "", f"line {found.forward.lineno} of the helper"
                ),
            ),
            _for_helper(script, found, model),
            script.place(found.call),
        )


def _for_helper(script: Script, found: Forwarded, model: str) -> Fix:
    """Return the change in the helper where it takes the model out of the wrapper already; else in its call."""
    helper, inner = script.code(found.call.func), ast.unparse(found.forward.func)
    if found.has_wrapper:
        return Fix(f"call what is wrapped in {helper}", diff=f"-{inner}(...)\n+{inner}.module(...)")
    return Fix("hand it what is wrapped", diff=f"-{helper}({model}, ...)\n+{helper}({model}.module, ...)")


@lint
def of_accelerate(script: Script) -> Iterator[Finding]:
    """Look for such a forward of a model that Accelerate has wrapped."""
    made = dict(_prepared(script)) if script.calls(ACCELERATOR) else {}
    for call in script.nodes(ast.Call) if made else ():
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        guard = script.one_rank_guard(call) if name in made else None
        prepare = made.get(name)
        if guard is None or prepare is None or not _holds_prepared(script, call, prepare):
            continue
        if _others_call(script, call) or not (_backward(script, call) or _hangs(script, call)):
            continue
        right = f"{script.code(prepare.func).rpartition('.')[0]}.unwrap_model({name})"
        yield Finding(
            f"one rank alone calls {name}, which Accelerate wraps in line {prepare.lineno}: it waits for the others",
            (script.seen(call, f"{right}(...)"), script.seen(guard.test), script.seen(prepare)),
            Fix("train on all ranks")
            if _backward(script, call)
            else Fix("call what is wrapped", edits=(script.replaced(call.func, right),)),
            script.place(call),
        )


def _prepared(script: Script) -> Iterator[tuple[str, ast.Call]]:
    """Yield the variables that hold what Accelerate has prepared, with the call."""
    for node in script.nodes(ast.Assign):
        match node:
            case ast.Assign(targets=[held], value=ast.Call(func=ast.Attribute(value=owner, attr="prepare")) as call):
                names = held.elts if isinstance(held, ast.Tuple) else [held]
                if script.is_a(owner, ACCELERATOR):
                    yield from ((each.id, call) for each in names if isinstance(each, ast.Name))


def _holds_prepared(script: Script, call: ast.Call, prepare: ast.Call) -> bool:
    """Whether a variable still holds, where it is called, what a call of prepare returned."""
    statement = script.tree.statement(prepare)
    if script.function(call) is not script.function(prepare) or prepare.lineno > call.lineno:
        return False
    found = script.tree.lookup(call.func.id, call) if isinstance(call.func, ast.Name) else []
    last = max(found, key=lambda each: each.line, default=None)
    return last is not None and script.tree.statement(last.node) is statement and not script.guards(prepare)


def _others_call(script: Script, call: ast.Call) -> bool:
    """Whether the other ranks call it elsewhere in the function, in a branch of their own."""
    code = ast.unparse(call.func)
    around = script.function(call) or script.module
    same = [node for node in script.inside(around) if isinstance(node, ast.Call) and ast.unparse(node.func) == code]
    return any(guard.who(script.tree) == OTHER_RANKS for node in same for guard in script.guards(node))


def _is_off(script: Script, call: ast.Call) -> bool:
    outer = [node for node in script.tree.above(call) if isinstance(node, (ast.With, ast.AsyncWith))]
    words = [ast.unparse(item.context_expr) for node in outer for item in node.items]
    function = script.function(call)
    words += [ast.unparse(each) for each in getattr(function, "decorator_list", ())]
    return any(off in word for word in words for off in OFF)


def _backward(script: Script, call: ast.Call) -> bool:
    """Whether a backward of what it returned stands behind the same test."""
    guard = script.one_rank_guard(call)
    if _is_off(script, call) or guard is None:
        return False
    branch = script.tree.statement(guard.test)
    inside = script.inside(*branch.body) if isinstance(branch, ast.If) else ()
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward"
        for node in inside
    )


def _hangs(script: Script, call: ast.Call) -> bool:
    """Whether the model of the file has buffers, and the next collective of all ranks is not its own next forward."""
    if "BatchNorm" not in script.text or "broadcast_buffers=False" in script.text.replace(" ", ""):
        return False
    statement = script.tree.statement(call)
    while statement is not None and script.one_rank_guard(statement) is not None:
        above = script.tree.parents.get(statement)
        statement = script.tree.statement(above) if above is not None else None
    block = script.tree.block(statement) if statement is not None else []
    after = block[block.index(statement) + 1 :] if statement in block else []
    first = after[0] if after else None
    return (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Call)
        and (script.resolve(first.value.func) in COLLECTIVES or _is_of_accelerate(script, first.value.func))
    )


def _is_of_accelerate(script: Script, function: ast.expr) -> bool:
    """Whether a method of an Accelerator is called in which all ranks meet."""
    if not isinstance(function, ast.Attribute) or function.attr not in {"wait_for_everyone", "gather", "reduce"}:
        return False
    return script.is_a(function.value, ACCELERATOR)
