"""Which locks a line of a function takes, and which it holds: those of the ``with`` statements around it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.source.text.syntax import parsed
from ddpdoctor.source.text.tree import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

ACQUIRE, RELEASE = "acquire", "release"
WITH = (ast.With, ast.AsyncWith)


class Held(NamedTuple):
    """A lock by the text that names it, and the line of the ``with`` that took it."""

    name: str
    line: int


def asked_lock(file: str, line: int) -> str:
    """Return what a line takes by ``with`` or ``acquire()``; empty where it takes no lock that has a name."""
    for node in ast.walk(parsed(file)):
        if isinstance(node, WITH) and node.lineno <= line < node.body[0].lineno:
            names = [_name(each.context_expr) for each in node.items]
            return names[0] if len(names) == 1 else ""
        if isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or 0):
            called = node.func
            if isinstance(called, ast.Attribute) and called.attr == ACQUIRE:
                return _name(called.value)
    return ""


def held_locks(file: str, line: int) -> tuple[Held, ...]:
    """Return what the ``with`` statements around a line, in its function, have taken; outermost first."""
    return tuple(
        Held(name, node.lineno)
        for node in _around(parsed(file), line)
        for each in node.items
        if (name := _name(each.context_expr))
    )


class Taken(NamedTuple):
    """The line of an ``acquire()``, and the first and the last one of its function."""

    line: int
    first: int
    last: int


def bare_acquires(file: str, name: str) -> tuple[Taken, ...]:
    """Return where a function takes a lock by ``acquire()``, and no ``finally`` of it gives the lock back."""
    found = {
        Taken(call.lineno, function.lineno, function.end_lineno or 0)
        for function in ast.walk(parsed(file))
        if isinstance(function, FUNCTIONS)
        for call in _calls(function, name, ACQUIRE)
        if not any(_calls(each, name, RELEASE) for each in _last_of(function))
    }
    return tuple(sorted(found))


def _last_of(function: ast.AST) -> Iterator[ast.stmt]:
    """Yield what a function does however it ends."""
    for each in ast.walk(function):
        if isinstance(each, ast.Try):
            yield from each.finalbody


def _calls(tree: ast.AST, name: str, method: str) -> list[ast.Call]:
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == method
        and _name(node.func.value) == name
    ]


def _around(tree: ast.AST, line: int) -> Iterator[ast.With | ast.AsyncWith]:
    found: list[ast.With | ast.AsyncWith] = []
    for node in ast.walk(tree):  # outer nodes come first
        if not _has(node, line):
            continue
        if isinstance(node, FUNCTIONS):
            found = []  # what stands around the definition of a function is not held where it runs
        elif isinstance(node, WITH) and node.body[0].lineno <= line:
            found.append(node)
    yield from found


def _has(node: ast.AST, line: int) -> bool:
    """Whether a line is one of a node's."""
    return getattr(node, "lineno", line + 1) <= line <= (getattr(node, "end_lineno", 0) or 0)


def _name(node: ast.expr) -> str:
    """Return the text of a name with its attributes; empty for anything else, as what a call returns is new."""
    inner = node
    while isinstance(inner, ast.Attribute):
        inner = inner.value
    return ast.unparse(node) if isinstance(inner, ast.Name) else ""
