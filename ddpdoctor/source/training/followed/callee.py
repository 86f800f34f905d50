"""What a call runs, and which of its parameters takes an argument."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.training.wraps.wrapped import possible
from ddpdoctor.source.values.bound import definition, values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.source.text.tree import Function, Tree


def called(tree: Tree, call: ast.Call) -> tuple[Tree, Function] | None:
    """Return the function that a call runs: a function or method that is seen, or the __init__ of a class."""
    if (found := definition(tree, call.func) or _method_abroad(tree, call.func)) is not None:
        return found
    there: Tree = tree
    named = [each.node for each in tree.lookup(call.func.id, call)] if isinstance(call.func, ast.Name) else []
    owner = named[0] if len(named) == 1 else None
    if not isinstance(owner, ast.ClassDef) and tree.abroad is not None:
        path = resolve(tree, call.func)
        away = tree.abroad(path) if path and "." in path else None
        there, owner = away if away is not None else (tree, None)
    if not isinstance(owner, ast.ClassDef):
        return None
    made = [each.node for each in there.bindings.get(owner, {}).get("__init__", [])]
    return (there, made[0]) if len(made) == 1 and isinstance(made[0], ast.FunctionDef) else None


def _method_abroad(tree: Tree, named: ast.expr) -> tuple[Tree, Function] | None:
    """Return the method of an object that a variable holds alone, and that was made of a class of another file."""
    if not isinstance(named, ast.Attribute) or not isinstance(named.value, (ast.Name, ast.Attribute)):
        return None
    held = values(tree, named.value)
    made = held[0].value if len(held) == 1 else None
    path = resolve(tree, made.func) if isinstance(made, ast.Call) else None
    away = tree.abroad(path) if tree.abroad is not None and path and "." in path else None
    if away is None or not isinstance(away[1], ast.ClassDef):
        return None
    found = [each.node for each in away[0].bindings.get(away[1], {}).get(named.attr, [])]
    return (away[0], found[0]) if len(found) == 1 and isinstance(found[0], ast.FunctionDef) else None


def parameter_of(function: Function, call: ast.Call, node: ast.AST, word: str | None, *, first: int) -> str | None:
    """Return the parameter that takes an argument of a call; ``first`` are those that the call fills itself."""
    if any(isinstance(each, ast.Starred) for each in call.args):
        return None
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    if word is not None:
        return word if word in {*names, *(each.arg for each in function.args.kwonlyargs)} else None
    names = names[1:] if names[:1] in (["self"], ["cls"]) else names
    place = call.args.index(node) + first  # type: ignore[arg-type]
    return names[place] if place < len(names) else None


def is_parameter(tree: Tree, node: ast.Name, parameter: ast.arg | None) -> bool:
    """Whether a name can still hold what was passed for a parameter."""
    bindings = tree.lookup(node.id, node)
    mine = [each for each in bindings if each.node is parameter]
    return bool(mine) and (len(bindings) == 1 or mine[0] in possible(tree, bindings, node))


def renewing(tree: Tree, call: ast.Call) -> Iterator[ast.For | ast.While]:
    """Yield the loop in which an iterator is made anew, because the one before is used up."""
    used_up = False
    for parent in tree.above(call):
        if isinstance(parent, ast.ExceptHandler):
            used_up |= parent.type is not None and resolve(tree, parent.type) == "StopIteration"
        elif isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return
        elif isinstance(parent, (ast.For, ast.While)) and used_up:
            yield parent
            return
