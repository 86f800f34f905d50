"""A tensor of integers is divided in place.

## What happens

A count (`correct`, `total`) is summed over the ranks by `all_reduce` and then averaged by `/=` or `div_`. The result of
a division is a float, and a tensor of integers has no room for it: "result type Float can't be cast to the desired
output type Long", on every rank. `all_reduce(..., op=ReduceOp.AVG)` of integers is refused, or rounds, likewise.

## How to be sure

Print `tensor.dtype`: `torch.tensor(7)` and `(predicted == labels).sum()` are int64.

In a source (`ddpdoctor lint`): a variable that holds such a tensor on every way is reduced, and divided in place.

## How to mend it

Divide into a new tensor (`mean = correct / world_size`), or make the tensor a float one before it is reduced
(`correct.float()`): a float32 counts exactly up to 16,777,216 only, a float64 far beyond.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch's c10/core/ScalarType.h, `canCast`, and TensorIterator.cpp.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, keyword, lint, log_pattern

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP745", Severity.ERROR)
IN_PLACE = re.compile(r"(?:^|;)\s*(?P<whole>(?P<name>[\w.\[\]'\"]+)\s*/=\s*(?P<by>[^\n#;]+?))\s*(?:;|$)", re.MULTILINE)
METHOD = re.compile(r"(?P<whole>(?P<name>[\w.]+)\.div_\((?P<by>[^\n]+)\))")


@log_pattern(r"RuntimeError: result type (?:Float|Double) can't be cast to the desired output type (?P<type>\w+)")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The line divides in place; other operations say the same."""
    found = IN_PLACE.search(record.text) or METHOD.search(record.text)
    if found is None:
        return
    name = found["name"]
    yield Finding(
        f"{name} holds integers ({match['type']}) and is divided in place",
        (record.proof(match, "a division into a new tensor, or a tensor of floats"),),
        Fix("divide into a new tensor", diff=f"-{found['whole']}\n+{name} = {name} / {found['by']}"),
        record.place,
    )


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a tensor of integers that is reduced, and divided in place after it."""
    reduced = {ast.unparse(call.args[0]): call for call in script.calls(*REDUCES) if call.args}
    if not reduced:
        return
    for node in (*script.nodes(ast.AugAssign), *script.nodes(ast.Call)):
        match node:
            case ast.AugAssign(target=ast.Name() as divided, op=ast.Div(), value=by):
                pass
            case ast.Call(func=ast.Attribute(value=ast.Name() as divided, attr="div_"), args=[by], keywords=[]):
                pass
            case _:
                continue
        call = reduced.get(divided.id)
        if call is None or script.function(call) is not script.function(node) or call.lineno > node.lineno:
            continue
        bound = script.tree.lookup(divided.id, divided)
        held = [each.value for each in bound if not isinstance(each.node, ast.AugAssign)]
        if len(held) == 1 and held[0] is not None and _is_integer(script, held[0]):
            name, right = divided.id, f"{divided.id} = {divided.id} / {script.code(by)}"
            edits = (script.replaced(node, right),) if _is_alone(script, node) else ()  # type: ignore[arg-type]
            yield Finding(
                f"{name} holds integers and is divided in place: the result, a float, has no room in it",
                (script.seen(node, right), script.seen(held[0]), script.seen(call)),
                Fix("divide into a new tensor", edits=edits, diff=f"-{script.code(node)}\n+{right}"),
                script.place(node),
            )


REDUCES = ("torch.distributed.all_reduce", "torch.distributed.reduce")
INTEGERS = frozenset(f"torch.{each}" for each in "long int int64 int32 int16 int8 short uint8".split())
MOVES = frozenset("to cuda cpu clone detach reshape view squeeze unsqueeze contiguous".split())
MADE = frozenset(f"torch.{each}" for each in "zeros ones full empty zeros_like ones_like tensor".split())


def _is_alone(script: Script, node: ast.AST) -> bool:
    return isinstance(node, ast.AugAssign) or isinstance(script.tree.parents.get(node), ast.Expr)


def _is_integer(script: Script, node: ast.expr) -> bool:
    """Whether an expression is certainly a tensor of integers."""
    match node:
        case ast.Call(func=ast.Attribute(value=inner, attr="sum"), args=[], keywords=[]):
            return _is_truth(inner)
        case ast.Call(func=ast.Attribute(value=inner, attr=name), args=given) if name in MOVES:
            types = [script.resolve(each) or "" for each in given]
            others = [word for word in node.keywords if word.arg not in {"device", "non_blocking", "copy"}]
            if others or any(each.startswith("torch.") and each not in INTEGERS for each in types):
                return False
            return any(each in INTEGERS for each in types) or _is_integer(script, inner)
        case ast.Call(func=function) if script.resolve(function) in MADE:
            kind = keyword(node, "dtype")
            if kind is not None:
                return script.resolve(kind) in INTEGERS
            return script.resolve(function) == "torch.tensor" and bool(node.args) and _is_count(node.args[0])
    return False


def _is_truth(node: ast.expr) -> bool:
    match node:
        case ast.Compare():
            return True
        case ast.Call(func=ast.Attribute(attr="eq" | "ne" | "gt" | "lt" | "ge" | "le")):
            return True
    return False


def _is_count(node: ast.expr) -> bool:
    """Whether an expression is a whole number, or a list of such."""
    match node:
        case ast.Constant(value=value):
            return type(value) is int
        case ast.Call(func=ast.Name(id="len")):
            return True
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return bool(parts) and all(map(_is_count, parts))
    return False
