"""Values that are certainly no tensor, by the source: numbers, sums of them, lists of them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpdoctor.check import Script


NUMBERS = {"float", "int", "len", "sum", "round"}


def is_number(script: Script, node: ast.expr) -> bool:  # noqa: PLR0911 - one case a shape
    match node:
        case ast.Constant(value=value):
            return isinstance(value, (int, float))
        case ast.List() | ast.Dict():
            return True
        case ast.Call(func=ast.Attribute(attr="item"), args=[]):
            return True
        case ast.Call(func=ast.Name() as function) if script.resolve(function) in NUMBERS:
            return True
        case ast.Name() if isinstance(held := script.held(node), ast.Call):
            said = script.returned(held)
            return bool(said) and all(isinstance(each, (ast.Tuple, ast.List, ast.Dict)) for each in said)
        case ast.Name():
            return _is_sum(script, node)
    return False


def _is_sum(script: Script, node: ast.Name) -> bool:
    """Whether a variable begins as a number and only numbers are added to it, up to here."""
    bound = [each for each in script.tree.lookup(node.id, node) if each.line < node.lineno]
    started = [
        each for each in bound if isinstance(each.value, ast.Constant) and isinstance(each.value.value, (int, float))
    ]
    added = [each.node.value for each in bound if isinstance(each.node, ast.AugAssign)]
    return (
        bool(started and added) and len(started) + len(added) == len(bound) and all(_is_plain(each) for each in added)
    )


def _is_plain(node: ast.expr) -> bool:
    """Whether an expression is a number of Python's, whatever its parts are."""
    match node:
        case ast.Constant(value=int() | float()):
            return True
        case ast.Call(func=ast.Attribute(attr="item"), args=[]) | ast.Call(func=ast.Name(id="len")):
            return True
        case ast.Call(func=ast.Attribute(attr="size"), args=[_]) | ast.Call(func=ast.Attribute(attr="numel"), args=[]):
            return True
        case ast.BinOp(left=left, right=right):
            return _is_plain(left) and _is_plain(right)
    return False
