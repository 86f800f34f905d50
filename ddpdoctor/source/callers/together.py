"""Functions that ranks can only go through together: each call of one makes a collective of all of them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.source.arguments import keyword
from ddpdoctor.source.reach.alone import is_alone
from ddpdoctor.source.reach.guards import guards
from ddpdoctor.source.text.bindings import last_name
from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.text.tree import FUNCTIONS
from ddpdoctor.source.vocabulary import COLLECTIVES, DDP, FSDP, GROUPS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.source.text.tree import Tree

MEETINGS = COLLECTIVES | {DDP, FSDP, *GROUPS}
OF_ACCELERATORS = frozenset(
    "wait_for_everyone gather gather_for_metrics reduce pad_across_processes prepare backward".split()
)
"""Methods of an Accelerator, or of Fabric, that all processes call."""
BLOCKS = (ast.ExceptHandler, ast.Match, ast.With, ast.AsyncWith)
FURTHEST = 2  # functions that call each other


def is_of_all(tree: Tree, function: ast.AST, depth: int = FURTHEST) -> bool:
    """Whether every call of a function makes a collective of all ranks, so that all of them come into it.

    A rank that came alone would wait there for the others. Nothing is known of a function of a program that nobody
    calls, and of what is done behind a test, but for one that asks whether there are several processes.
    """
    if not isinstance(function, ast.FunctionDef) or _is_left_over(tree, function):
        return False
    return any(_meets(tree, each, depth) and _is_always_made(tree, each) for each in _calls(tree, function))


def _calls(tree: Tree, function: ast.FunctionDef) -> Iterator[ast.Call]:
    return (each for each in tree.of(ast.Call) if tree.function(each) is function)


def _meets(tree: Tree, call: ast.Call, depth: int) -> bool:
    path = resolve(tree, call.func)
    if path in MEETINGS:
        return keyword(call, "group") is None and keyword(call, "process_group") is None
    if isinstance(call.func, ast.Attribute) and call.func.attr in OF_ACCELERATORS:
        return (last_name(call.func.value) or "").lstrip("_") in {"accelerator", "fabric"}
    return depth > 0 and any(is_of_all(tree, each, depth - 1) for each in _methods(tree, call))


def _methods(tree: Tree, call: ast.Call) -> list[ast.AST]:
    """Return the method of the same class that a call is of: ``self.synchronize()``."""
    owner = tree.class_of(call)
    match call.func:
        case ast.Attribute(value=ast.Name(id="self"), attr=name) if owner is not None:
            return [each.node for each in tree.bindings.get(owner, {}).get(name, ())]
    return []


def _is_always_made(tree: Tree, call: ast.Call) -> bool:
    """Whether nothing in its function keeps a rank from a call where there are several."""
    for parent in tree.above(call):
        if isinstance(parent, (*BLOCKS, ast.For, ast.While, ast.BoolOp, ast.IfExp)):
            return False
        if isinstance(parent, FUNCTIONS):
            break
    return all(is_alone(tree, each.test, holds=not each.holds) for each in guards(tree, call))


def _is_left_over(tree: Tree, function: ast.FunctionDef) -> bool:
    """Whether it stands in a program, which calls it nowhere, and no other file does."""
    owner = tree.class_of(function)
    named = owner.name if owner is not None else function.name
    if tree.read.get(named) or (tree.callers is not None and owner is None and tree.callers(function)):
        return False
    return any(isinstance(each, ast.If) and "__name__" in ast.unparse(each.test) for each in tree.module.body)
