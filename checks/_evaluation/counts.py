"""Counts of one rank, and numbers of ranks, as the source says them."""

from __future__ import annotations

import ast
import re

from ddpdoctor.check import Site, last_name, tree_of

from .quotients import WORLD

WORLDS = re.compile(r"world|replicas|nprocs|num_proc|n_?gpus?|num_gpus|size\(\)|n_?ranks|num_ranks", re.IGNORECASE)
"""In the name of what counts the ranks, beside the usual ones."""
PUT_TOGETHER = re.compile(r"reduce|gather|sync|broadcast|tensor|stack|cat$|psum|exchange", re.IGNORECASE)
"""What a count is given to that becomes one of all ranks."""
SIZES = re.compile(
    r"len\(|\.size\(|\.shape|numel\(|batch_?size|\.sum\(|^(n|b|m|bs|num|count|size|batch|tokens|n_\w+|num_\w+)$"
)
"""What says how many samples a batch has."""
KEPT = ("item", "clone", "float", "double", "cpu", "detach", "to", "squeeze", "sum")
"""Methods that give the same number."""


def counts_ranks(around: ast.AST, names: set[str], site: Site) -> bool:
    """Whether a function divides or multiplies by the number of ranks: the sum, or anything from a line on."""
    kinds, called = (ast.Div, ast.Mult, ast.FloorDiv), WORLD | ranks_in(tree_of(site.file).module)
    for node in ast.walk(around):
        if getattr(node, "lineno", 0) < site.line and not {ast.unparse(each) for each in ast.walk(node)} & names:
            continue
        match node:
            case ast.BinOp(op=op, left=left, right=right) if isinstance(op, kinds):
                parts = [left, right]
            case ast.AugAssign(op=op, value=value) if isinstance(op, kinds):
                parts = [value]
            case ast.Call(func=ast.Attribute(attr="div" | "div_" | "mul" | "mul_"), args=[value, *_]):
                parts = [value]
            case _:
                continue
        text = " ".join(map(ast.unparse, parts))
        if WORLDS.search(text) or set(re.findall(r"\w+", text)) & called:
            return True
    return False


def ranks_in(tree: ast.AST) -> set[str]:
    """Return the names that code gives the number of ranks: ``rank, size = dist.get_rank(), dist.get_world_size()``."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                found |= {last_name(name) for name, value in zip(names, values, strict=False) if _is_world(value)}
            case ast.Assign(targets=names, value=value) if _is_world(value):
                found |= set(map(last_name, names))
    return found - {""}


def _is_world(value: ast.expr) -> bool:
    """Whether an expression is the number of ranks, as torch or the launcher tells it."""
    text = ast.unparse(bare(value))
    return text.endswith("get_world_size()") or bool(re.fullmatch(r"os\.(environ|getenv).{,2}WORLD_SIZE.*", text))


def is_told_ranks(call: ast.Call) -> bool:
    """Whether a call is given the rank and the number of ranks, to take a part by: it puts nothing together."""
    given = [*call.args, *(each.value for each in call.keywords)]
    names = {last_name(each.func if isinstance(each, ast.Call) else each) for each in given}
    by_rank = any(re.fullmatch(r"(get_)?(global_|dp_)?rank|RANK", each) for each in names)
    return by_rank and bool(names & WORLD) and not PUT_TOGETHER.search(last_name(call.func))


def bare(value: ast.expr) -> ast.expr:
    """Return what a number is read off: ``total`` of ``total.item()``, ``float(total)``."""
    while isinstance(value, ast.Call):
        if isinstance(value.func, ast.Attribute) and value.func.attr in KEPT:
            value = value.func.value
        elif isinstance(value.func, ast.Name) and value.func.id in {"float", "int"} and len(value.args) == 1:
            value = value.args[0]
        else:
            break
    return value
