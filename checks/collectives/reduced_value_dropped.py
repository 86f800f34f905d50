"""What a reduction or a gather returns is thrown away, and the value of one rank goes on.

## What happens

`accelerator.gather(x)`, `accelerator.reduce(x)`, `hvd.allreduce(x)` and `fabric.all_gather(x)` leave what they are
given as it is and return a new tensor. A call of them in a line of its own costs the communication, and what is
printed or saved afterwards is still the rank's own value. torch's `dist.all_reduce` works in place instead, as
`fabric.all_reduce` does: given an expression, `dist.all_reduce(loss * batch)`, it reduces a tensor that nobody holds.

## How to be sure

Print the value on each rank after the call: they differ. The same of `dist.all_gather(parts, value)`, where `parts` is
never read and `value` is, and of one thing of several that are gathered together. Reported only where the same variable
is read again after the call; a reduction that is there to wait for the other ranks is left alone.

## How to mend it

    loss = accelerator.reduce(loss, reduction="mean")
    total = loss * batch
    dist.all_reduce(total)

## Versions and sources

Holds for torch 2.2 and later, Accelerate, Fabric and Horovod. Sources: their documentation of these functions.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    ACCELERATOR,
    Ailment,
    Evidence,
    Finding,
    Fix,
    Place,
    Severity,
    StepFingerprinted,
    Training,
    lint,
    tree_of,
    watch,
)

from .._findings.places import file_of_first_step
from .._scripts.source import is_own
from ._dropped import Dropped, dropped

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP765", Severity.ERROR)
IN_PLACE = ("torch.distributed.all_reduce", "torch.distributed.reduce", "torch.distributed.broadcast")
RETURNING = (
    "horovod.torch.allreduce",
    "horovod.torch.allgather",
    "horovod.torch.broadcast",
    "torch.distributed.nn.all_reduce",
    "torch.distributed.nn.functional.all_reduce",
    "accelerate.utils.gather",
    "accelerate.utils.reduce",
)
OBJECTS = {
    ACCELERATOR: {"gather", "gather_for_metrics", "reduce", "pad_across_processes"},
    "lightning.Fabric": {"all_gather"},
    "lightning.fabric.Fabric": {"all_gather"},
    "lightning_fabric.Fabric": {"all_gather"},
}
"""Methods of theirs that return what they have reduced; Fabric's all_reduce works in place."""


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look at calls in a line of their own whose result is what was asked for, and at expressions that are reduced."""
    for call in _returning(script):
        first = call.args[0] if call.args else None
        if not isinstance(first, ast.Name) or _is_made_up(script, first):
            continue
        if _is_alone(script, call) and _is_read_after(script, first):
            yield Finding(
                f"what {script.code(call.func)} returns is thrown away: {first.id} stays that of the rank",
                (script.seen(call, f"{first.id} = {script.code(call)}"),),
                Fix("keep what it returns", edits=(script.replaced(call, f"{first.id} = {script.code(call)}"),)),
                script.place(call),
            )
    for call in script.calls(*IN_PLACE):
        first = call.args[0] if call.args else None
        if isinstance(first, ast.BinOp) and _is_alone(script, call) and _holds_name(first):
            yield Finding(
                f"{script.code(call.func)} reduces the result of {script.code(first)}, which nobody holds",
                (script.seen(call, f"a variable that holds {script.code(first)}, reduced and read"),),
                Fix(
                    "reduce a variable, and go on with it",
                    diff=f"+total = {script.code(first)}\n+{script.code(call.func)}(total)",
                ),
                script.place(call),
            )
    for each in dropped(script.tree.module) if is_own(script) and "all_gather" in script.text else ():
        yield _never_read(each, Place(file=str(script.path), line=each.line))


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Look into the file of a training that runs on several ranks, for what is gathered and never read."""
    file = file_of_first_step(event, training)
    if file and training.world_size > 1:
        for each in dropped(tree_of(file).module):
            yield _never_read(each, Place(file=file, line=each.line))


def _never_read(found: Dropped, where: Place) -> Finding:
    return Finding(
        f"what {found.operation} gathers in {found.filled} is never read: {found.given} stays that of the rank",
        (
            Evidence(f"{found.operation}({found.filled}, {found.given})", f"{found.filled} is read after it",
                     f"{where.file}:{found.line}"),
            Evidence(f"{found.given} is read, which is this rank's own", "", f"{where.file}:{found.read}"),
        ),
        Fix("go on with what was gathered", diff=f"+{found.given} = torch.cat({found.filled})"),
        where,
    )  # fmt: skip


def _returning(script: Script) -> Iterator[ast.Call]:
    """Yield the calls that leave their argument as it is."""
    yield from script.calls(*RETURNING)
    for call in script.nodes(ast.Call):
        match call.func:
            case ast.Attribute(value=ast.Name() | ast.Attribute() as held, attr=name) if name in METHODS:
                if name in OBJECTS.get(_type_of(script, held) or "", ()):
                    yield call


def _type_of(script: Script, held: ast.expr) -> str | None:
    """Return the class of what a variable holds: of what makes it, or that which a parameter says it is."""
    made = script.value(held)
    if isinstance(made, ast.Call):
        return script.resolve(made.func)
    match script.tree.lookup(held.id, held) if isinstance(held, ast.Name) else []:
        case [binding] if isinstance(binding.node, ast.arg) and binding.node.annotation is not None:
            return script.resolve(binding.node.annotation)
    return None


METHODS = frozenset().union(*OBJECTS.values())


MADE_UP = frozenset(f"torch.{name}" for name in "empty full ones rand randint randn tensor zeros".split())


def _is_made_up(script: Script, name: ast.Name) -> bool:
    """Whether a variable holds what is made for the call: a benchmark, or a wait for the other ranks."""
    held = [each.value for each in script.tree.lookup(name.id, name)]
    return bool(held) and all(isinstance(each, ast.Call) and _made_by(script, each) in MADE_UP for each in held)


def _made_by(script: Script, call: ast.Call) -> str:
    """Return the full name of the function that makes a tensor: ``torch.ones(1).cuda()``."""
    while isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Call):
        call = call.func.value
    return script.resolve(call.func) or ""


def _is_alone(script: Script, call: ast.Call) -> bool:
    """Whether a call is a statement of its own."""
    return isinstance(script.tree.parents.get(call), ast.Expr)


def _holds_name(node: ast.BinOp) -> bool:
    return any(isinstance(each, ast.Name) for each in ast.walk(node))


def _is_read_after(script: Script, name: ast.Name) -> bool:
    """Whether a variable is read again below in its function, and given nothing else before."""
    function = script.function(name)
    later = [
        each
        for each in script.nodes(ast.Name)
        if each.id == name.id and script.function(each) is function and each.lineno > (name.end_lineno or 0)
    ]
    first = min(later, key=lambda each: (each.lineno, isinstance(each.ctx, ast.Load)), default=None)
    return first is not None and isinstance(first.ctx, ast.Load)
