"""Lines that evaluate: they call a function that does, or stand between ``eval()`` and ``train()`` in the loop."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator

from ddpdoctor.check import Tree, calls_at, last_name, tree_of

EVALUATES = re.compile(r"_?(run_|do_)?(eval|evaluate|validate|valid|validation|test)(_\w+)?$")
TRAINS = {"backward", "step"}


@functools.cache
def evaluation_at(file: str, number: int) -> int | None:
    """Return the line by which the evaluation is known that a line is part of; None where it is part of none.

    That is the line itself where it calls a function that evaluates, as its name says, or what it does.
    """
    tree = tree_of(file)
    names = [last_name(call.func) for call in calls_at(file, number)]
    made = [each for each in tree.of(ast.FunctionDef) if each.name in names]
    if any(EVALUATES.match(name) for name in names) or any(map(_is_evaluation, made)):
        return number
    return next((first for first, last in _in_place(tree) if first <= number <= last), None)


def _is_evaluation(function: ast.FunctionDef) -> bool:
    """Whether a function sets a model to evaluate, goes through batches or sets it back, and trains on none."""
    called = _called(function)
    loops = any(isinstance(node, ast.For) for node in ast.walk(function))
    return (loops or "train" in called) and "eval" in called and not called & TRAINS


def _in_place(tree: Tree) -> Iterator[tuple[int, int]]:
    """Yield the first and last lines of what stands between ``model.eval()`` and ``model.train()`` in one block."""
    blocks: list[ast.If | ast.For | ast.While] = [*tree.of(ast.If), *tree.of(ast.For), *tree.of(ast.While)]
    for block in blocks:
        begun: ast.stmt | None = None
        for each in block.body:
            if _sets(each) == "eval":
                begun = begun or each
            elif begun is not None and _sets(each) == "train":
                yield begun.lineno, each.end_lineno or each.lineno
                begun = None
            elif _called(each) & TRAINS:
                begun = None


def _sets(statement: ast.stmt) -> str:
    """Return ``eval`` or ``train`` where a statement is no more than such a call of a method, without arguments."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.args or call.keywords:
        return ""
    return call.func.attr if call.func.attr in {"eval", "train"} else ""


def _called(node: ast.AST) -> set[str]:
    return {last_name(each.func) for each in ast.walk(node) if isinstance(each, ast.Call)}
