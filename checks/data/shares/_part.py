"""Loaders of a part of the data that the number of the process has cut, in a script of Accelerate."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ddpdoctor.check import by_parameter, given, last_name

from ..._scripts.source import LOADER

if TYPE_CHECKING:
    from ddpdoctor.check import Script

CUT = re.compile(r"\.shard\(|\bSubset\(|\bislice\(|\bsplit_dataset_by_node\(")
"""What gives a process its part of a data set, by its number and the number of all."""
NUMBERS = ("process_index", "num_processes")


def part_of(script: Script, loader: ast.Name) -> ast.Call | None:
    """Return what cuts the data set of a loader by the process: a call above it, or what makes the loader is told."""
    made = [each.value or each.whole for each in script.tree.lookup(loader.id, loader)]
    for call in (each for each in made if isinstance(each, ast.Call) and last_name(each.func) != "prepare"):
        if script.resolve(call.func) == LOADER:
            data = given(call, 0, "dataset")
            held = script.value(data) if data is not None else None
            if isinstance(held, ast.Call) and CUT.search(ast.unparse(held)) and _numbers(held.args, held.keywords):
                return held
        elif _numbers(call.args, call.keywords) and _makes_part(script, call):
            return call
    return None


def _numbers(args: list[ast.expr], keywords: list[ast.keyword]) -> bool:
    """Whether a call is told both the number of the process and how many there are, as they are."""
    told = {each.attr for each in (*args, *(one.value for one in keywords)) if isinstance(each, ast.Attribute)}
    return told >= set(NUMBERS)


def _makes_part(script: Script, call: ast.Call) -> bool:
    """Whether a function of the project makes a loader, of what both numbers that it is told have cut."""
    found = script.defined(call.func)
    if found is None:
        return False
    tree, function = found
    if not isinstance(function, ast.FunctionDef):
        return False
    told = {
        name
        for name, value in by_parameter(function, call).items()
        if isinstance(value, ast.Attribute) and value.attr in NUMBERS
    }
    inner = [each for statement in function.body for each in ast.walk(statement)]
    makes = any(isinstance(each, ast.Call) and script.names_in(tree, each.func) == LOADER for each in inner)
    counted = {each.id for each in inner if isinstance(each, ast.Name)} >= told
    return makes and len(told) == len(NUMBERS) and counted and CUT.search(ast.unparse(function)) is not None
