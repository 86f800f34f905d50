"""What is read of a model that Accelerate has prepared, where it is prepared and in functions that it is handed to."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.check import by_parameter

from ...._frameworks.accelerate import prepares

if TYPE_CHECKING:
    from ddpdoctor.check import Script

MOST = 3  # functions that hand it on to each other


@dataclass(frozen=True, slots=True)
class Read:
    """An attribute that is read of it, the call of ``prepare``, and what that was given."""

    node: ast.Attribute
    call: ast.Call
    model: ast.expr


def read_of_prepared(script: Script) -> Iterator[Read]:
    """Yield them, of models that are prepared in this file and read in it."""
    for call in prepares(script, script.tree) if "accelerate" in script.imported else ():
        for model, reads in script.given_back(script.tree, call):
            for node in _attributes(script, reads, MOST):
                yield Read(node, call, model)


def _attributes(script: Script, reads: list[ast.expr], depth: int) -> Iterator[ast.Attribute]:
    for each in reads:
        match script.tree.parents.get(each):
            case ast.Attribute(ctx=ast.Load()) as found:
                yield found
            case ast.Call() as call if depth and call.func is not each:
                yield from _attributes(script, _read_as_parameter(script, call, each), depth - 1)
            case ast.keyword() as word if depth:
                outer = script.tree.parents[word]
                if isinstance(outer, ast.Call):
                    yield from _attributes(script, _read_as_parameter(script, outer, each), depth - 1)


def _read_as_parameter(script: Script, call: ast.Call, given: ast.expr) -> list[ast.expr]:
    """Return where the function of the file that a call calls reads what it is given, and nothing else by that name."""
    function = script.called(call)
    if not isinstance(function, ast.FunctionDef) or script.tree.class_of(function) is not None:
        return []
    names = {name for name, value in by_parameter(function, call).items() if value is given}
    nodes = [each for each in script.inside(*function.body) if isinstance(each, ast.Name) and each.id in names]
    return [] if any(not isinstance(each.ctx, ast.Load) for each in nodes) else list(nodes)
