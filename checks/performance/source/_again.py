"""A forward of the same model with the same batch as the training's own, whose result is for a metric alone."""

from __future__ import annotations

import ast
import functools
import re

from ddpdoctor.check import Tree, dotted, statement_at, tree_of, withs_around

from ._step_body import Body, body_of

WITHOUT_GRADIENT = re.compile(r"\b(no_grad|inference_mode)\(")
MODULE = re.compile(r"\.module\b")


@functools.cache
def first_forward(file: str, number: int) -> int:
    """Return the line of the step's own forward that a line without gradients repeats; 0 where it repeats none."""
    tree = tree_of(file)
    body, statement = body_of(tree, number), statement_at(tree, number)
    if body is None or statement is None or not _is_without_gradient(file, tree, statement, number):
        return 0
    mine = _calls(statement)
    for each in _forwards(body):
        own = tree.statement(each)
        if own is None or own is statement or _is_without_gradient(file, tree, own, own.lineno):
            continue
        if _said(each) in mine and not _is_bound_between(body, each, own, statement):
            return each.lineno
    return 0


def _is_without_gradient(file: str, tree: Tree, statement: ast.stmt, number: int) -> bool:
    withs = [each for each in withs_around(file, number) if tree.function(each) is tree.function(statement)]
    return any(WITHOUT_GRADIENT.search(ast.unparse(item.context_expr)) for each in withs for item in each.items)


def _calls(statement: ast.stmt) -> set[str]:
    return {_said(node) for node in ast.walk(statement) if isinstance(node, ast.Call)}


def _forwards(body: Body) -> list[ast.Call]:
    """Return the calls of a body that have arguments, by names that are bound outside of it."""
    bound = {
        node.id
        for each in body.body
        for node in ast.walk(each)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    calls = [node for each in body.body for node in ast.walk(each) if isinstance(node, ast.Call)]
    return [each for each in calls if each.args and (dotted(each.func) or "?").partition(".")[0] not in {*bound, "?"}]


def _said(call: ast.Call) -> str:
    """Return a call as text, with a wrapper's ``.module`` left out."""
    return f"{MODULE.sub('', ast.unparse(call.func))}({', '.join(map(ast.unparse, [*call.args, *call.keywords]))})"


def _is_bound_between(body: Body, call: ast.Call, own: ast.stmt, later: ast.stmt) -> bool:
    """Whether what a call is given is bound anew between two statements, or changed where it is."""
    given = {node.id for each in [*call.args, *call.keywords] for node in ast.walk(each) if isinstance(node, ast.Name)}
    first, last = sorted((own.lineno, later.lineno))
    for node in (each for one in body.body for each in ast.walk(one)):
        line = getattr(node, "lineno", 0)
        if not first < line <= last:
            continue
        match node:
            case ast.Name(id=name, ctx=ast.Store()) if name in given:
                return True
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr)) if name in given:
                if attr.endswith("_") and not attr.startswith("_"):
                    return True
    return False
