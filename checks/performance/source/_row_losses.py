"""A loop that computes the loss of each row of a batch by itself, and adds them up."""

from __future__ import annotations

import ast
import re

from ddpdoctor.check import Tree, last_name

from ._filled import is_known
from ._samples import measured

LOSS = re.compile(r"loss|criterion|cross_entropy|nll|mse|l1|bce|kl_div|cosine", re.IGNORECASE)


def computes_rows(tree: Tree, loop: ast.For) -> bool:
    """Whether a loop counts the rows of a batch, and all that it does is to add up a loss of each."""
    match loop:
        case ast.For(target=ast.Name(id=counter), iter=ast.Call(func=ast.Name(id="range"), args=[length])):
            if not measured(tree, length) & _given(tree, loop):
                return False
        case _:
            return False
    calls = [each for each in ast.walk(loop) if isinstance(each, ast.Call) and each is not loop.iter]
    losses = [each for each in calls if LOSS.search(last_name(each.func)) and _takes_row(each, counter)]
    plain = all(is_known(each) or each in losses or last_name(each.func) == "append" for each in calls)
    return bool(losses) and plain and _only_adds(loop.body)


def _given(tree: Tree, loop: ast.For) -> set[str]:
    """Return the names of a batch: what a loop around this one draws, or its function is given."""
    function = tree.function(loop)
    arguments = getattr(function, "args", None)
    found = {each.arg for each in arguments.args} if arguments is not None else set()
    drawn = (each.target for each in tree.above(loop) if isinstance(each, ast.For))
    return found | {each.id for target in drawn for each in ast.walk(target) if isinstance(each, ast.Name)}


def _takes_row(call: ast.Call, counter: str) -> bool:
    """Whether a call is given a part of two things or more at the counter: ``criterion(out[i], y[i])``."""
    parts = {
        ast.unparse(each.value)
        for argument in call.args
        for each in ast.walk(argument)
        if isinstance(each, ast.Subscript)
        and any(isinstance(name, ast.Name) and name.id == counter for name in ast.walk(each.slice))
    }
    return len(parts) > 1


def _only_adds(body: list[ast.stmt]) -> bool:
    """Whether statements bind names for one pass, and add to others that they do not read."""
    sums: set[str] = set()
    read: list[str] = []
    for each in (one for statement in body for one in ast.walk(statement) if isinstance(one, ast.stmt)):
        match each:
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=value):
                sums.add(name)
                read += _names(value)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.BinOp(left=ast.Name(id=first), op=ast.Add())) if (
                name == first
            ):
                sums.add(name)
                read += _names(each.value)[1:]
            case ast.Assign(targets=[ast.Name()], value=value) | ast.Expr(value=value):
                read += _names(value)
            case ast.If() | ast.Pass() | ast.Continue():
                pass
            case _:
                return False
    return not sums & {*read}


def _names(node: ast.expr) -> list[str]:
    """Return the names that an expression reads, in the order of the source."""
    names = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
    return [each.id for each in sorted(names, key=lambda each: (each.lineno, each.col_offset))]
