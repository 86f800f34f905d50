"""Which calls of a class can bring an attribute of its objects together over the ranks, as the source says it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from ddpdoctor.check import last_name

from ._statements import Function, calls

EXCHANGES = re.compile("reduce|gather|broadcast|scatter|sync|average_")
GENERIC = re.compile(r"__dict__|\bvars\(|buffers|state_dict|getattr|setattr|parameters\(\)\s*\+|\.modules\(")
"""What reaches all attributes of an object, by no name."""


def exchanges(call: ast.Call) -> bool:
    """Whether a call can exchange something, by its name; a tensor's own gather and scatter are given a dimension."""
    if not EXCHANGES.search(last_name(call.func)):
        return False
    first = call.args[0] if call.args else None
    number = first.operand if isinstance(first, ast.UnaryOp) else first
    of_dimension = isinstance(number, ast.Constant) or any(each.arg == "dim" for each in call.keywords)
    return not (of_dimension and last_name(call.func).startswith(("gather", "scatter")))


def concerning(kind: ast.ClassDef, name: str, updates: Callable[[ast.stmt], bool]) -> Iterator[ast.Call]:
    """Yield the calls of methods that name an attribute, or reach all, and of helpers of those that update it.

    Of a class that trains as a whole, the other methods bring other things together: hits of an evaluation, say. So do
    calls that are given gradients. What a caller hands to a method that updates it can be of all ranks already.
    """
    methods = {each.name: each for each in kind.body if isinstance(each, Function)}
    updating = [each for each in methods.values() if any(map(updates, _statements(each)))]
    waiting = [*updating]
    helpers: dict[str, Function] = {}
    while waiting:
        for each in calls(waiting.pop()):
            helper = methods.get(last_name(each.func))
            if helper is not None and helper.name not in helpers:
                helpers[helper.name] = helper
                waiting.append(helper)
    for method in methods.values():
        whole = method.name in helpers or method in updating or GENERIC.search(ast.unparse(method)) is not None
        if whole or _names(method, name):
            yield from (each for each in calls(method) if whole or not _is_of_gradients(each))
        else:
            yield from _handed_on(method, {each.name for each in updating})


def _handed_on(method: Function, updating: set[str]) -> Iterator[ast.Call]:
    """Yield the calls that exchange what a method hands on to one of those that update."""
    handed = {
        part.id
        for each in calls(method)
        if last_name(each.func) in updating
        for part in ast.walk(each)
        if isinstance(part, ast.Name)
    } - {"self"}
    for statement in _statements(method):
        names = {each.id for each in ast.walk(statement) if isinstance(each, ast.Name)}
        if names & handed:
            yield from (each for each in calls(statement) if exchanges(each))


def _statements(function: Function) -> list[ast.stmt]:
    return [each for each in ast.walk(function) if isinstance(each, ast.stmt) and each is not function]


def _names(method: Function, name: str) -> bool:
    return any(isinstance(each, ast.Attribute) and each.attr == name for each in ast.walk(method))


def _is_of_gradients(call: ast.Call) -> bool:
    given = [each for each in call.args if isinstance(each, ast.Attribute)]
    return bool(given) and all(each.attr == "grad" for each in given)
