"""What a line averages over the ranks, and what that is divided by, as the source says it."""

from __future__ import annotations

import ast

from ddpdoctor.check import Site, calls_at, dotted, keyword, last_name, resolve, tree_of

from ..._evaluation.counts import counts_ranks
from ..._evaluation.metrics import part_around

BY_DEFAULT = {"all_reduce", "reduce"}
"""Of Fabric and of Lightning's strategies: the mean, unless they are told otherwise."""
MEANS = {"mean", "avg"}
OPTIONS = ("reduce_op", "reduction", "op")
POSITIONS = {"all_reduce": 2, "reduce": 2}


def averaging(site: Site, *, by_default: bool) -> ast.Call | None:
    """Return the call on a line that averages over the ranks; ``by_default``: those that are told nothing do."""
    for call in calls_at(site.file, site.line):
        name, full = last_name(call.func), resolve(tree_of(site.file), call.func) or ""
        if name not in BY_DEFAULT or not call.args:
            continue
        is_torch = full.startswith("torch.")
        told = next((found for option in OPTIONS if (found := keyword(call, option)) is not None), None)
        if told is None and len(call.args) > 1 and not is_torch:
            told = call.args[POSITIONS[name]] if by_default and len(call.args) > POSITIONS[name] else call.args[1]
        if told is None:
            return call if by_default and not is_torch else None
        if is_torch:
            return call if (dotted(told) or "").endswith("ReduceOp.AVG") else None
        is_mean = isinstance(told, ast.Constant) and isinstance(told.value, str) and told.value.lower() in MEANS
        return call if is_mean else None
    return None


def divided_by_whole(call: ast.Call, site: Site) -> ast.BinOp | None:
    """Return the quotient of what a call averages by the length of a loader's whole data set, in its function.

    None where the number of ranks is counted in.
    """
    around = part_around(site)
    names = _holders(call, around)
    if counts_ranks(around, names, site._replace(line=call.lineno)):
        return None
    for node in ast.walk(around):
        match node:
            case ast.BinOp(
                op=ast.Div(),
                left=above,
                right=ast.Call(func=ast.Name(id="len"), args=[ast.Attribute(attr="dataset")]),
            ) if node.lineno >= call.lineno and _is_of(above, call, names):
                return node
    return None


def _holders(call: ast.Call, around: ast.AST) -> set[str]:
    """Return the names of what was averaged: what the result is assigned to; in place, what was given."""
    for node in ast.walk(around):
        if isinstance(node, ast.Assign) and any(each is call for each in ast.walk(node.value)):
            return {ast.unparse(target) for target in node.targets}
        if isinstance(node, ast.Expr) and node.value is call:
            return {ast.unparse(call.args[0])}
    return set()


def _is_of(value: ast.expr, call: ast.Call, names: set[str]) -> bool:
    parts = list(ast.walk(value))
    read = {ast.unparse(each) for each in parts if isinstance(each, (ast.Name, ast.Attribute, ast.Subscript))}
    return any(each is call for each in parts) or bool(read & names)
