"""A loop that fills a tensor, or an array, piece by piece, though no piece needs the one before."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence

COUNTED = ("range", "enumerate")
PACKAGES = ("torch", "np", "numpy", "math")
METHODS = {
    "item", "tolist", "sum", "mean", "max", "min", "abs", "any", "all", "size", "numel", "dim", "long", "int", "float",
    "bool", "clone", "clamp", "numpy", "unsqueeze", "squeeze", "to",
}  # fmt: skip
"""What any other call does can depend on the calls before it: those of a model's layers do at times."""


def fills(loop: ast.For) -> bool:
    """Whether all that a counted loop does is to set what its counter stands in the index of."""
    if not (isinstance(loop.iter, ast.Call) and getattr(loop.iter.func, "id", "") in COUNTED) or loop.orelse:
        return False
    counters, leaves = _counters(loop), list(_leaves(loop.body))
    set_ = [each for each in leaves if isinstance(each, ast.Assign | ast.AugAssign) and _targets(each)]
    bases = {ast.unparse(base) for each in set_ for base, _ in _targets(each)}
    if not set_ or not all(_is_counted(index, counters) for each in set_ for _, index in _targets(each)):
        return False
    return all(_is_plain(each) for each in leaves) and not _reads(loop, bases) and not carries_names(leaves)


def _leaves(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that are done, those of conditions and inner loops among them."""
    for each in body:
        if isinstance(each, ast.If):
            yield from _leaves(each.body + each.orelse)
        elif isinstance(each, ast.For):
            yield from _leaves(each.body)
        else:
            yield each


def _counters(loop: ast.For) -> set[str]:
    """Return the names that a loop, and the loops inside, count with."""
    targets = [each.target for each in ast.walk(loop) if isinstance(each, ast.For)]
    return {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}


def _targets(statement: ast.stmt) -> list[tuple[ast.expr, ast.expr]]:
    """Return what a statement sets a part of, with the index: ``mask`` and ``b, i`` of ``mask[b, i] = 1``."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return [(each.value, each.slice) for each in targets if isinstance(each, ast.Subscript)]


def _is_counted(index: ast.expr, counters: set[str]) -> bool:
    return any(isinstance(each, ast.Name) and each.id in counters for each in ast.walk(index))


def _is_plain(statement: ast.stmt) -> bool:
    """Whether a statement sets a part of something or a name, and calls no model and no function of one's own."""
    if not isinstance(statement, ast.Assign | ast.AugAssign | ast.Continue | ast.Pass):
        return False
    if isinstance(statement, ast.AugAssign) and not _targets(statement):
        return False
    names = getattr(statement, "targets", [])
    if any(not isinstance(each, ast.Subscript | ast.Name | ast.Tuple) for each in names):
        return False
    return all(is_known(each) for each in ast.walk(statement) if isinstance(each, ast.Call))


def is_known(call: ast.Call) -> bool:
    """Whether a call is one of Python's own, of torch's or numpy's, or a method of a tensor."""
    if isinstance(call.func, ast.Name):
        return hasattr(builtins, call.func.id)
    if not isinstance(call.func, ast.Attribute):
        return False
    return call.func.attr in METHODS or ast.unparse(call.func).partition(".")[0] in PACKAGES


def _reads(loop: ast.For, bases: set[str]) -> bool:
    """Whether what is set is read in the loop as well: a table that is built on what it has."""
    set_ = {id(base) for each in ast.walk(loop) if isinstance(each, ast.stmt) for base, _ in _targets(each)}
    return any(
        isinstance(each, ast.Name | ast.Attribute | ast.Subscript)
        and id(each) not in set_
        and ast.unparse(each) in bases
        for each in ast.walk(loop)
    )


def carries_names(statements: Sequence[ast.stmt]) -> bool:
    """Whether a pass through these reads a name that a pass before has bound."""
    bound: set[str] = set()
    stored = {node.id for each in statements for node in ast.walk(each) if isinstance(node, ast.Name) and _stores(node)}
    for each in statements:
        names = [node for node in ast.walk(each) if isinstance(node, ast.Name)]
        if any(not _stores(node) and node.id in stored - bound for node in names):
            return True
        bound |= {node.id for node in names if _stores(node)}
    return False


def _stores(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)
