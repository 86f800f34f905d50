"""Gathers of torch.distributed whose result is never read, as the source says it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ddpdoctor.check import last_name

GATHERS = {"all_gather", "all_gather_object", "all_gather_into_tensor"}
OWNERS = {"dist", "distributed"}
MADE_UP = {"ones", "zeros", "empty", "full", "rand", "randn", "randint", "arange"}
Function = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Dropped:
    """A gather, what it fills, and what it is given, which is read afterwards at a line."""

    operation: str
    filled: str
    given: str
    line: int
    read: int


def dropped(module: ast.Module) -> Iterator[Dropped]:
    """Find them in the functions of a file."""
    for function in (each for each in ast.walk(module) if isinstance(each, Function)):
        nodes = list(ast.walk(function))
        for node in nodes:
            match node:
                case ast.Expr(
                    value=ast.Call(func=ast.Attribute() as called, args=[ast.Name(), ast.Name(), *_]) as call
                ):
                    pass
                case _:
                    continue
            if called.attr in GATHERS and last_name(called.value) in OWNERS:
                yield from _judged(call, called.attr, nodes)


def _judged(call: ast.Call, operation: str, nodes: list[ast.AST]) -> Iterator[Dropped]:
    filled, given = (each.id for each in call.args[:2] if isinstance(each, ast.Name))
    inside = {id(each) for each in ast.walk(call)}
    reads = [
        each
        for each in nodes
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load) and id(each) not in inside
    ]
    outer = any(isinstance(each, (ast.Global, ast.Nonlocal)) and filled in each.names for each in nodes)
    own = any(isinstance(each, ast.Name) and each.id == filled and isinstance(each.ctx, ast.Store) for each in nodes)
    after = [each.lineno for each in reads if each.id == given and each.lineno > call.lineno]
    if own and not outer and after and not any(each.id == filled for each in reads) and not _is_made_up(given, nodes):
        yield Dropped(operation, filled, given, call.lineno, min(after))


def _is_made_up(name: str, nodes: list[ast.AST]) -> bool:
    """Whether a variable holds what is made for the call: a benchmark, or a wait for the other ranks."""
    values = [
        each.value
        for each in nodes
        if isinstance(each, ast.Assign) and any(isinstance(to, ast.Name) and to.id == name for to in each.targets)
    ]
    return any(map(_makes, values))


def _makes(value: ast.expr) -> bool:
    """Whether an expression makes a tensor of nothing: ``torch.ones(1).cuda()``."""
    while (
        isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and isinstance(value.func.value, ast.Call)
    ):
        value = value.func.value
    return isinstance(value, ast.Call) and last_name(value.func) in MADE_UP
