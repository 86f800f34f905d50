"""A line of the loop made to run once in many steps: what is pasted where that can be said."""

from __future__ import annotations

import ast
import linecache

from ddpdoctor.check import tree_of

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
    loops = [each for each in tree.of(ast.For) if each.lineno < line <= (each.end_lineno or 0)]
    functions = (*tree.of(ast.FunctionDef), *tree.of(ast.AsyncFunctionDef))
    within = [each for each in functions if each.lineno < line <= (each.end_lineno or 0)]
    inner = max((each.lineno for each in within), default=0)
    loop = max(loops, key=lambda each: each.lineno, default=None)
    counter = _counter(loop) if loop is not None and loop.lineno > inner else ""
    return (found[0], counter) if len(found) == 1 else None


def _counter(loop: ast.For) -> str:
    """Return the name that counts the passes of a loop."""
    match loop:
        case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"))):
            return name
        case ast.For(target=ast.Tuple(elts=[ast.Name(id=name), *_]), iter=ast.Call(func=ast.Name(id="enumerate"))):
            return name
    return ""
