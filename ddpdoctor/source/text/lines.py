"""What stands on the lines of a file, by its path."""

from __future__ import annotations

import ast
import functools
from typing import TYPE_CHECKING

from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.text.syntax import parsed
from ddpdoctor.source.text.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Container


@functools.cache
def tree_of(file: str) -> Tree:
    """Return the tree of a file; an empty one where it cannot be read or is no Python."""
    return Tree(parsed(file))


def statement_at(tree: Tree, line: int) -> ast.stmt | None:
    """Return the innermost statement that a line is part of, the head of a block among them."""
    found = [
        each for each in tree.nodes if isinstance(each, ast.stmt) and each.lineno <= line <= (each.end_lineno or 0)
    ]
    return min(found, key=lambda each: ((each.end_lineno or 0) - each.lineno, -each.col_offset), default=None)


def called_at(file: str, line: int, methods: Container[str]) -> str:
    """Return the first call of one of these methods on a line, as ``accelerator.gather``; empty where there is none.

    torch's own functions are left out.
    """
    tree = tree_of(file)
    for node in tree.of(ast.Call):
        is_method = isinstance(node.func, ast.Attribute) and node.func.attr in methods
        if is_method and node.lineno <= line <= (node.end_lineno or 0):
            named = resolve(tree, node.func) or ""
            if not named.startswith("torch."):
                return " ".join(ast.unparse(node.func).split())
    return ""


def calls_at(file: str, line: int) -> list[ast.Call]:
    """Return the calls on a line, of the innermost statement that it is part of, from left to right."""
    statement = statement_at(tree_of(file), line)
    calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)] if statement is not None else []
    return [call for call in calls if call.lineno <= line <= (call.end_lineno or 0)]


def loop_at(file: str, line: int) -> str:
    """Return the name of what the ``for`` on a line goes through (``loader``); empty where it is no mere name."""
    for node in tree_of(file).of(ast.For):
        if node.lineno == line:
            inner = node.iter
            if isinstance(inner, ast.Call) and ast.unparse(inner.func) in {"enumerate", "tqdm", "iter"} and inner.args:
                inner = inner.args[0]
            return ast.unparse(inner) if isinstance(inner, (ast.Name, ast.Attribute)) else ""
    return ""


def withs_around(file: str, line: int) -> list[ast.With]:
    """Return the ``with`` statements whose blocks a line stands in, outermost first."""
    return [node for node in tree_of(file).of(ast.With) if node.body[0].lineno <= line <= (node.end_lineno or 0)]


def logged_at(file: str, name: str) -> int:
    """Return the line of the first ``log(name, ...)`` of a file, counted from 1; 0 where there is none."""
    for node in tree_of(file).of(ast.Call):
        match node:
            case ast.Call(func=ast.Attribute(attr="log"), args=[ast.Constant(value=value), *_]) if value == name:
                return node.lineno
    return 0


def attribute_set_at(file: str, owner: str, method: str, name: str) -> int:
    """Return the line of a file where a method of a class sets an attribute of ``self``; 0 where it does not."""
    for each in tree_of(file).of(ast.ClassDef):
        methods = [node for node in each.body if isinstance(node, ast.FunctionDef) and node.name == method]
        for node in ast.walk(methods[0]) if each.name == owner and methods else ():
            match node:
                case ast.Attribute(value=ast.Name(id="self"), attr=attribute, ctx=ast.Store()) if attribute == name:
                    return node.lineno
    return 0


def is_cut_to_length(file: str) -> bool:
    """Whether a file cuts something to a length that is computed: ``predictions[:len(dataset)]``."""
    return any(
        each.lower is None and each.upper is not None and not isinstance(each.upper, ast.Constant)
        for each in tree_of(file).of(ast.Slice)
    )
