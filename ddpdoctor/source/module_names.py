"""The names that a module has once it is imported, as far as its text tells."""

from __future__ import annotations

import ast
import warnings

from ddpdoctor.source.text.syntax import NO_PYTHON

BY_HAND = {"exec", "eval", "globals", "locals", "vars", "setattr", "__import__", "execfile"}
"""What gives a module names that no statement binds."""
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def functions(text: str) -> list[str]:
    """Return the functions of a module's own level, in the order of the text; none where it is no Python."""
    tree = _tree(text)
    return (
        [each.name for each in tree.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))] if tree else []
    )


def lacks(text: str, name: str) -> bool:
    """Whether a module certainly has no such name once it is imported, on whatever way.

    False where it is no Python, imports a star, or makes its names by hand.
    """
    tree = _tree(text)
    if tree is None:
        return False
    bound: set[str | None] = set()
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        bound.update(_bound(node))
        if not isinstance(node, SCOPES):
            waiting += ast.iter_child_nodes(node)
    bound.update(each for node in ast.walk(tree) if isinstance(node, ast.Global) for each in node.names)
    is_by_hand = "*" in bound or "__getattr__" in bound or any(map(_makes_names, ast.walk(tree)))
    return not is_by_hand and name not in bound and not (name.startswith("__") and name.endswith("__"))


def _bound(node: ast.AST) -> tuple[str | None, ...]:
    """Return the names that a node itself binds."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return (name,)
        case ast.alias(name=name, asname=asname):
            return (asname or name.partition(".")[0],)
        case ast.Name(id=name, ctx=ast.Store()):
            return (name,)
        case ast.MatchAs(name=name) | ast.MatchStar(name=name) | ast.ExceptHandler(name=name):
            return (name,)
        case ast.MatchMapping(rest=name):
            return (name,)
    return ()


def _makes_names(node: ast.AST) -> bool:
    match node:
        case ast.Name(id=name):
            return name in BY_HAND
        case ast.Attribute(attr=name):
            return name in {"modules", "__dict__"}
    return False


def _tree(text: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except NO_PYTHON:
        return None
