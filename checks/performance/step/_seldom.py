"""A line of the loop made to run once in many steps: what is pasted where that can be said."""

from __future__ import annotations

import ast
import linecache

from ddpdoctor.check import Tree, tree_of

from ._step_body import body_of

MANY = 100  # steps


def seldom(file: str, line: int) -> str:
    """Return a diff that puts a statement under a condition on the step; empty where more would have to change.

    A statement whose value is used further on is no such line, nor one in a loop without a counter.
    """
    found = _statement(file, line)
    if found is None:
        return ""
    statement, counter = found
    text = linecache.getline(file, line).rstrip()
    indent = text[: len(text) - len(text.lstrip())]
    if isinstance(statement, ast.AugAssign) and ".item()" in text:
        return f"-{text}\n+{text.replace('.item()', '.detach()')}"
    if not isinstance(statement, ast.Expr) or not counter:
        return ""
    return f"-{text}\n+{indent}if {counter} % {MANY} == 0:\n+{indent}    {text.strip()}"


def _statement(file: str, line: int) -> tuple[ast.stmt, str] | None:
    """Find the statement that is this very line, and the counter of the loop that it stands in."""
    tree = tree_of(file)
    found = [each for each in tree.nodes if isinstance(each, ast.stmt) and each.lineno == each.end_lineno == line]
    loop = body_of(tree, line)
    if not isinstance(loop, ast.For):
        loop = _innermost(tree, line)
    return (found[0], _counter(loop) if loop is not None else "") if len(found) == 1 else None


def _innermost(tree: Tree, line: int) -> ast.For | None:
    """Return the innermost loop around a line, in its function, where none is seen to make steps."""
    loops = [each for each in tree.of(ast.For) if each.lineno < line <= (each.end_lineno or 0)]
    functions = (*tree.of(ast.FunctionDef), *tree.of(ast.AsyncFunctionDef))
    inner = max((each.lineno for each in functions if each.lineno < line <= (each.end_lineno or 0)), default=0)
    return max((each for each in loops if each.lineno > inner), key=lambda each: each.lineno, default=None)


def _counter(loop: ast.For) -> str:
    """Return the name that counts the passes of a loop."""
    match loop:
        case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"))):
            return name
        case ast.For(target=ast.Tuple(elts=[ast.Name(id=name), *_]), iter=ast.Call(func=ast.Name(id="enumerate"))):
            return name
    return ""
