"""A number is taken from an environment variable as text.

## What happens

`os.environ["RANK"]` is text: `"0"`. Compared with the number 0 it is never equal, so that the branch for rank 0 is
taken by no rank: nothing is saved or printed. Where a number is needed, torch refuses the text:
`rank=os.environ["RANK"]` is a RuntimeError, `torch.cuda.set_device("1")` a ValueError. And `os.environ["MASTER_PORT"]
= 12355` is a TypeError, since only text can be put there.

## How to be sure

`print(repr(os.environ['RANK']))`. Reported only where the text reaches the comparison or the call without `int()`.

## How to mend it

`int(os.environ["RANK"])`, and `os.environ["MASTER_PORT"] = "12355"`.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. Source: Python's documentation of `os.environ`, and
torch/distributed/rendezvous.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import DDP, INIT, Ailment, Finding, Fix, Severity, keyword, lint

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP120", Severity.ERROR)


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for text where a number is meant, and for a number where text is needed."""
    for node in script.tree.nodes:
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=[ast.Constant(value=int(number))]):
                name = script.variable(left)
                is_equality = isinstance(operator, (ast.Eq, ast.NotEq))
                if name in NUMBERS and not isinstance(number, bool) and not _has_number_default(script, left):
                    said = "are never equal" if is_equality else "cannot be compared, which is a TypeError"
                    yield _as_text(script, left, name, f"the text of {name} and the number {number} {said}")
            case ast.Call():
                yield from _in_call(script, node)
            case ast.BinOp(op=ast.Mult() | ast.Sub() | ast.Div() | ast.FloorDiv()):
                yield from _calculated(script, node)
            case ast.Assign(targets=[ast.Subscript(value=base, slice=ast.Constant(value=str(name)))], value=value):
                is_number = isinstance(value, ast.Constant) and isinstance(value.value, (int, float))
                if is_number and script.resolve(base) == "os.environ":
                    right = f'"{script.code(value)}"'
                    yield Finding(
                        f"{name} is given a number, and a variable holds text: a TypeError",
                        (script.seen(value, right),),
                        Fix("write it as text", edits=(script.replaced(value, right),)),
                        script.place(value),
                    )


def _calculated(script: Script, node: ast.BinOp) -> Iterator[Finding]:
    if (first := _text_of(script, node.left)) and (second := _text_of(script, node.right)):
        right = [f"int({script.code(each)})" for each in (node.left, node.right)]
        yield Finding(
            f"{script.code(node)} calculates with the texts of {first} and {second}: a TypeError",
            (script.seen(node, " and ".join(right)),),
            Fix("convert both", edits=(script.replaced(node.left, right[0]), script.replaced(node.right, right[1]))),
            script.place(node),
        )


def _text_of(script: Script, node: ast.expr) -> str:
    """Return the variable whose text a name holds, on all ways; empty where it can hold something else."""
    bound = script.tree.lookup(node.id, node) if isinstance(node, ast.Name) else []
    held = [each.value for each in bound] if bound else [node]
    names = [script.variable(each) for each in held if each is not None and not _has_number_default(script, each)]
    return (names[0] or "") if len(names) == len(held) and all(names) else ""


NUMBERS = {
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "GROUP_RANK",
    "SLURM_PROCID",
    "SLURM_LOCALID",
}
WANTED = {INIT: ("rank", "world_size"), "torch.utils.data.DistributedSampler": ("rank", "num_replicas")}


def _in_call(script: Script, call: ast.Call) -> Iterator[Finding]:
    path = script.resolve(call.func) or ""
    passed: list[ast.expr | None] = [keyword(call, name) for name in WANTED.get(path, ())]
    if path == "torch.cuda.set_device":
        passed = [*call.args[:1]]
    devices = keyword(call, "device_ids") if path == DDP else None
    if isinstance(devices, ast.List):
        passed += devices.elts
    for each in passed:
        if each is not None and (name := script.variable(each)) in NUMBERS and not _has_number_default(script, each):
            yield _as_text(script, each, name or "", f"{script.code(call.func)} is given the text of {name}")


def _has_number_default(script: Script, node: ast.expr) -> bool:
    """Whether the expression can be a number after all: ``os.environ.get("RANK", 0)`` where the variable is not set."""
    value = script.value(node)
    is_text = isinstance(value, ast.Subscript) or (isinstance(value, ast.Call) and len(value.args) == 1)
    return not is_text


def _as_text(script: Script, node: ast.expr, name: str | None, message: str) -> Finding:
    right = f"int({script.code(script.value(node))})"
    edits = (script.replaced(node, right),) if script.value(node) is node else ()
    return Finding(
        message,
        (script.seen(node, right),),
        Fix(f"convert {name} to a number where it is read", edits=edits),
        script.place(node),
    )
