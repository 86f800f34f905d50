"""Decorators that run a function on one rank alone, the script's own or a framework's, where it communicates."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.check import DECORATORS, Fix, calls_at, last_name, tree_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddpdoctor.check import Script, Site


def without_decorator(stack: Sequence[Site], site: Site) -> Fix | None:
    """Return which decorator is to go; None where the line ``site`` of a stack is not in what one has made.

    ``stack`` are the user's lines that the rank is in, the innermost first.
    """
    at = next((at for at, each in enumerate(stack) if each == site), 0)
    tree = tree_of(site.file)
    called = {each.func.id for each in calls_at(site.file, site.line) if isinstance(each.func, ast.Name)}
    makers = {
        each.name
        for each in tree.of(ast.FunctionDef)
        if each.lineno < site.line <= (each.end_lineno or 0) and called & {arg.arg for arg in each.args.args}
    }
    inner = stack[at - 1] if at else None
    if inner is None or not makers:
        return None
    for each in tree_of(inner.file).of(ast.FunctionDef):
        for decorator in each.decorator_list if each.name == inner.function else ():
            if last_name(decorator.func if isinstance(decorator, ast.Call) else decorator) in makers:
                named = ast.unparse(decorator)
                return Fix(
                    f"take @{named} off {each.name}, which communicates, and call it on all ranks; within it, what one "
                    "rank is to write stays under a test",
                    diff=f"-@{named}\n def {each.name}({ast.unparse(each.args)}):",
                )
    return None


def decorator_of_one_rank(script: Script, node: ast.AST) -> ast.expr | None:
    """Return the framework's decorator by which one rank alone runs the function around a node."""
    decorators: list[ast.expr] = getattr(script.function(node), "decorator_list", [])
    for decorator in decorators:
        bare = decorator.func if isinstance(decorator, ast.Call) else decorator
        if DECORATORS.search(script.resolve(bare) or ast.unparse(bare)):
            return decorator
    return None
