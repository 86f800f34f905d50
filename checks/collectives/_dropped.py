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
                    judged = _judged(call, called.attr, nodes)
                case ast.Expr(
                    value=ast.Call(func=ast.Attribute() as called, args=[ast.Name(), ast.Tuple(), *_]) as call
                ):
                    judged = _judged_parts(call, called.attr, nodes)
                case _:
                    continue
            if called.attr in GATHERS and last_name(called.value) in OWNERS:
                yield from judged


def _judged_parts(call: ast.Call, operation: str, nodes: list[ast.AST]) -> Iterator[Dropped]:
    """Judge a gather of several things in one tuple: those that nobody takes out again, and that are read here."""
    filled, given = call.args[0], call.args[1]
    if not isinstance(filled, ast.Name) or not isinstance(given, ast.Tuple) or not _is_own(filled.id, nodes):
        return
    inside = {id(each) for each in ast.walk(call)}
    reads = [each for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)]
    later = [each for each in reads if each.lineno > call.lineno and id(each) not in inside]
    taken = _places_taken(filled.id, nodes)
    known = sum(len(each) for each in taken.values()) and len(taken) == sum(each.id == filled.id for each in later)
    if later and any(each.id == filled.id for each in later) and not known:
        return
    read = set().union(*taken.values())
    for at, each in enumerate(given.elts):
        after = [one.lineno for one in later if isinstance(each, ast.Name) and one.id == each.id]
        own = isinstance(each, ast.Name) and not _is_given_anew(each.id, call, nodes)
        if at not in read and after and own:
            yield Dropped(operation, f"{filled.id}, part {at}" if read else filled.id, ast.unparse(each), call.lineno,
                          min(after))  # fmt: skip
            return


def _is_own(name: str, nodes: list[ast.AST]) -> bool:
    """Whether a variable is the function's own, and is given something there."""
    outer = any(isinstance(each, (ast.Global, ast.Nonlocal)) and name in each.names for each in nodes)
    own = any(isinstance(each, ast.Name) and each.id == name and isinstance(each.ctx, ast.Store) for each in nodes)
    return own and not outer


def _is_given_anew(name: str, call: ast.Call, nodes: list[ast.AST]) -> bool:
    """Whether a variable is given something else after a call, before which nobody reads it."""
    later = [each for each in nodes if isinstance(each, ast.Name) and each.id == name and each.lineno > call.lineno]
    anew = [
        each.lineno
        for each in nodes
        if isinstance(each, ast.Assign)
        and each.lineno > call.lineno
        and any(isinstance(to, ast.Name) and to.id == name for to in each.targets)
        and not any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(each.value))
    ]
    return bool(anew) and min(each.lineno for each in later) >= min(anew)


def _places_taken(filled: str, nodes: list[ast.AST]) -> dict[int, set[int]]:
    """Return which places loops over what was gathered take out, by loop: ``part[1] for part in parts``, or by name."""
    found = {}
    for each in nodes:
        match each:
            case ast.comprehension(target=target, iter=ast.Name(id=name)) if name == filled:
                pass
            case ast.For(target=target, iter=ast.Name(id=name)) if name == filled:
                pass
            case _:
                continue
        if isinstance(target, ast.Tuple):
            names = {at: one.id for at, one in enumerate(target.elts) if isinstance(one, ast.Name)}
            found[id(each)] = {at for at, one in names.items() if one != "_"}
        elif isinstance(target, ast.Name):
            found[id(each)] = {
                node.slice.value
                for node in nodes
                if isinstance(node, ast.Subscript)
                and isinstance(node.value, ast.Name)
                and node.value.id == target.id
                and isinstance(node.slice, ast.Constant)
                and isinstance(node.slice.value, int)
            }
    return {key: each for key, each in found.items() if each}


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
