"""Lists and deques of the source that samples are kept in, and that others are compared with."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpdoctor.check import Statistic, last_name, tree_of

KEEPS = {"append", "appendleft", "extend"}
JOINS = {"cat", "stack", "concat", "concatenate", "vstack"}
MULTIPLIES = {"mm", "matmul", "einsum", "linear", "cdist", "cosine_similarity"}


def compared_list(file: str) -> tuple[str, int] | None:
    """Return the one list of a file that is put together for a product of matrices, and the line that fills it."""
    tree = tree_of(file).module
    calls = [(each.func, each.lineno) for each in ast.walk(tree) if isinstance(each, ast.Call)]
    filled = {
        ast.unparse(called.value): line
        for called, line in calls
        if isinstance(called, ast.Attribute) and called.attr in KEEPS
    }
    found = {name for name in filled if any(name in _within(each) for each in _operands(tree))}
    return next(((name, filled[name]) for name in found), None) if len(found) == 1 else None


def filled_at(held: Statistic) -> tuple[str, int] | None:
    """Return the first line that puts something in a part of a variable; None for what an object holds."""
    assigned = tree_of(held.file).of(ast.Assign) if held.file and not held.kind else []
    parts = [each for each in assigned if any(isinstance(to, ast.Subscript) for to in each.targets)]
    lines = [each.lineno for each in parts if any(_base(to) == held.path for to in each.targets)]
    return (held.file, min(lines)) if lines else None


def _base(target: ast.expr) -> str:
    while isinstance(target, ast.Subscript):
        target = target.value
    return last_name(target)


def _operands(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield what products of matrices multiply; a name is what it was assigned from, where that joins several."""
    joined = {
        node.targets[0].id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and any(map(_joins, ast.walk(node)))
    }
    for node in ast.walk(tree):
        match node:
            case ast.BinOp(op=ast.MatMult(), left=left, right=right):
                operands = [left, right]
            case ast.Call(func=called, args=operands) if last_name(called) in MULTIPLIES:
                pass
            case _:
                continue
        for each in operands:
            yield each
            yield from (joined[part.id] for part in ast.walk(each) if isinstance(part, ast.Name) and part.id in joined)


def _within(operand: ast.expr) -> set[str]:
    """Return the names and attributes that an operand puts together."""
    calls = [node for node in ast.walk(operand) if _joins(node)]
    return {
        ast.unparse(each)
        for call in calls
        for each in ast.walk(call)
        if isinstance(each, (ast.Name, ast.Attribute)) and each is not getattr(call, "func", None)
    }


def _joins(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) in JOINS
