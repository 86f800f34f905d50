"""The statements that are run in each step: the loop that makes the steps, or the function that makes one."""

from __future__ import annotations

import ast
import functools

from ddpdoctor.check import Tree, tree_of

Loop = ast.For | ast.AsyncFor | ast.While
Body = ast.For | ast.AsyncFor | ast.While | ast.FunctionDef | ast.AsyncFunctionDef
STEPS = {"backward", "manual_backward"}


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
