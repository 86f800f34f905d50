"""The statements that are run in each step: the loop or function that makes one, and how a line of it runs seldom."""

from __future__ import annotations

import ast
import functools
import linecache

from ddpdoctor.check import Tree, tree_of

Loop = ast.For | ast.AsyncFor | ast.While
Body = ast.For | ast.AsyncFor | ast.While | ast.FunctionDef | ast.AsyncFunctionDef
STEPS = {"backward", "manual_backward"}
MANY = 100  # steps


@functools.cache
def body_at(file: str, number: int) -> Body | None:
    """Return the innermost loop around a line that calls backward, else its function where that does; None if none."""
    return body_of(tree_of(file), number)


def body_of(tree: Tree, number: int) -> Body | None:
    """Return the same of a tree."""
    around = [each for each in _bodies(tree) if each.lineno <= number <= (each.end_lineno or 0)]
    functions = [each for each in around if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    first = max((each.lineno for each in functions), default=0)
    inside = [each for each in around if each.lineno >= first and makes_steps(each)]
    loops = [each for each in inside if isinstance(each, Loop)]
    return max(loops or inside, key=lambda each: each.lineno, default=None)


def makes_steps(body: ast.AST) -> bool:
    """Whether a backward is called in it."""
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in STEPS
        for node in ast.walk(body)
    )


def loops_within(tree: Tree, number: int, body: Body | None) -> list[Loop]:
    """Return the loops around a line that stand in a body, and are not the body itself; none of no body."""
    loops: list[Loop] = [*tree.of(ast.For), *tree.of(ast.AsyncFor), *tree.of(ast.While)]
    inside = (each for each in loops if body is not None and body.lineno < each.lineno)
    return [each for each in inside if each.lineno <= number <= (each.end_lineno or 0)]


def _bodies(tree: Tree) -> list[Body]:
    functions: list[Body] = [*tree.of(ast.FunctionDef), *tree.of(ast.AsyncFunctionDef)]
    return [*functions, *tree.of(ast.For), *tree.of(ast.AsyncFor), *tree.of(ast.While)]


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
