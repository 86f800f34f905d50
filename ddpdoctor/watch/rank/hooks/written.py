"""The whole numbers that a function of the user's computes with, as its source writes them: ``updates * accumulate``.

Nothing of the user's is called: names are looked up in what the function was made with, attributes in what objects
hold.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import CodeType, FunctionType
from typing import Any

OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: int.__add__,
    ast.Sub: int.__sub__,
    ast.Mult: int.__mul__,
    ast.FloorDiv: int.__floordiv__,
}


def lengths_written(function: Any) -> list[int] | None:
    """Return the numbers that do not hang on what a function is given, of products the whole; None without source."""
    if not isinstance(function, FunctionType):
        return None
    node = _node(function.__code__)
    if node is None:
        return None
    names = {name: each for name, each in function.__globals__.items() if name in function.__code__.co_names}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # nothing was assigned yet
            names[name] = cell.cell_contents
    return list(_largest(node, names))


def _node(code: CodeType) -> ast.AST | None:
    """Return the source of a function, if it is the only one that begins at its line."""
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename)))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    kinds = ast.Lambda if code.co_name == "<lambda>" else ast.FunctionDef
    found = [each for each in ast.walk(tree) if isinstance(each, kinds) and each.lineno == code.co_firstlineno]
    return found[0] if len(found) == 1 else None


def _largest(node: ast.AST, names: dict[str, Any]) -> Iterator[int]:
    value = _value(node, names)
    if value is not None:
        yield value
        if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)):  # of the rest of a length, that as well
            return
    for each in ast.iter_child_nodes(node):
        yield from _largest(each, names)


def _value(node: ast.AST, names: dict[str, Any]) -> int | None:
    """Compute an expression of known whole numbers; None for any other."""
    match node:
        case ast.Constant(value=int(number)):
            found: Any = number
        case ast.Name(id=name):
            found = names.get(name)
        case ast.Attribute(value=ast.Name(id=name), attr=attribute):
            found = getattr(names.get(name), "__dict__", {}).get(attribute)
        case ast.BinOp(op=op, left=left, right=right) if type(op) in OPERATIONS:
            one, other = _value(left, names), _value(right, names)
            unknown = one is None or other is None or (other == 0 and isinstance(op, ast.FloorDiv))
            found = None if unknown else OPERATIONS[type(op)](one, other)  # type: ignore[arg-type]
        case _:
            return None
    return found if type(found) is int else None
