"""What a function of the project does with a model that it is handed: it calls it, or asks for its state."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.values.bound import definition
from ddpdoctor.source.values.sites import HARMLESS, bare

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.source.text.tree import Tree

Taken = tuple["Tree", ast.FunctionDef, str]
"""A function, with the tree that it stands in, and the parameter that holds what was handed to it."""
DEPTH = 3  # functions that hand it on to each other
UNWRAPPED = "module"


def taken(tree: Tree, call: ast.Call) -> Iterator[tuple[ast.expr, Taken]]:
    """Yield the arguments of a call of a function of the project that is certain, each with what takes it there."""
    found = definition(tree, call.func)
    if found is None or not isinstance(found[1], ast.FunctionDef):
        return
    there, function = found[0], found[1]
    if any(resolve(there, bare(each)) not in HARMLESS for each in function.decorator_list):
        return
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    names = names[1:] if names[:1] in (["self"], ["cls"]) else names
    places = [] if any(isinstance(each, ast.Starred) for each in call.args) else zip(names, call.args, strict=False)
    words = [(each.arg, each.value) for each in call.keywords if each.arg]
    for name, given in (*places, *words):
        yield given, (there, function, name)


def reads(there: Taken) -> list[ast.Name]:
    """Return where a function reads a parameter that it never gives another value."""
    tree, function, name = there
    if len(tree.bindings.get(function, {}).get(name, ())) != 1:
        return []
    return [each for each in tree.read.get(name, ()) if tree.function(each) is function]


def forwards(there: Taken, depth: int = DEPTH) -> Iterator[tuple[Tree, ast.Call]]:
    """Yield the calls of a parameter itself, here or in what it is handed on to: the forwards of a model."""
    tree = there[0]
    for read in reads(there):
        call = tree.parents[read]
        if isinstance(call, ast.Call) and call.func is read:
            yield tree, call
    for further in _handed_on(there) if depth else ():
        yield from forwards(further, depth - 1)


def states(there: Taken, depth: int = DEPTH) -> Iterator[tuple[Tree, ast.Call, bool]]:
    """Yield the calls of ``state_dict`` of a parameter, or of what it wraps: of that, whether it is.

    What it wraps is ``model.module``, also where it is taken only if there is such a thing.
    """
    tree, function, _ = there
    for read in reads(there):
        yield from ((tree, call, False) for call in _asked(tree, read))
        inner = tree.parents[read]
        if not isinstance(inner, ast.Attribute) or inner.attr != UNWRAPPED:
            continue
        yield from ((tree, call, True) for call in _asked(tree, inner))
        statement = tree.statement(inner)
        match statement:
            case ast.Assign(targets=[ast.Name(id=raw)], value=value) if inner is value or _is_either(value, inner):
                if len(tree.bindings.get(function, {}).get(raw, ())) == 1:
                    held = [each for each in tree.read.get(raw, ()) if tree.function(each) is function]
                    yield from ((tree, call, True) for each in held for call in _asked(tree, each))
    for further in _handed_on(there) if depth else ():
        yield from states(further, depth - 1)


def _asked(tree: Tree, model: ast.expr) -> list[ast.Call]:
    asked = tree.parents[model]
    call = tree.parents[asked] if isinstance(asked, ast.Attribute) and asked.attr == "state_dict" else None
    return [call] if isinstance(call, ast.Call) and call.func is asked else []


def _is_either(value: ast.expr, inner: ast.expr) -> bool:
    return isinstance(value, ast.IfExp) and value.body is inner


def _handed_on(there: Taken) -> Iterator[Taken]:
    tree = there[0]
    for read in reads(there):
        above = tree.parents[read]
        call = tree.parents[above] if isinstance(above, ast.keyword) else above
        if isinstance(call, ast.Call) and call.func is not read:
            yield from (further for given, further in taken(tree, call) if given is read)
