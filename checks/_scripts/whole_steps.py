"""Numbers that the source counts as the steps of one process, and that this rank's steps are measured by."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import last_name, tree_of

from .measured_steps import use

if TYPE_CHECKING:
    from ddpdoctor.check import Tree

SEVERAL = re.compile(r"world|gpu|rank|replica|proc|device|node|global_|effective|shard|num_tasks", re.IGNORECASE)
"""Words of a number that takes the ranks into account, or can."""
HELD_OUT = re.compile(r"val|test|eval|dev|held", re.IGNORECASE)
ROUNDS = {"int", "ceil", "floor", "round", "max", "min"}


class WholeSteps(NamedTuple):
    """A count of the batches of all samples: what it says, its line, and what measures a rank's steps by it."""

    text: str
    line: int
    used: str
    used_line: int


def whole_steps(file: str, batch: int | None) -> Iterator[WholeSteps]:
    """Yield the counts ``len(data) // batch_size`` of a file that steps of this rank are divided by or compared with.

    The data are those that a DistributedSampler is given; the size is the one that their loader is given, ``batch``
    where it is written as a number, or what its order is cut into.
    """
    tree = tree_of(file)
    shared = {text for call in _calls(tree, "DistributedSampler") for text in _data(call)}
    sizes = {ast.unparse(each) for each in _sizes(tree)} | ({str(batch)} if batch else set())
    counters = _counters(tree)
    for node in tree.of(ast.BinOp):
        size = ast.unparse(node.right)
        if not isinstance(node.op, (ast.FloorDiv, ast.Div)) or size not in sizes or _speaks_of_ranks(tree, node.right):
            continue
        if not any(_is_length(each, shared) for each in _factors(node.left)):
            continue
        if SEVERAL.search(ast.unparse(node.left)):
            continue
        whole = _whole(tree, node)
        used = None if SEVERAL.search(ast.unparse(whole)) else use(tree, whole, counters)
        if used is not None:
            yield WholeSteps(ast.unparse(whole), node.lineno, " ".join(ast.unparse(used).split()), used.lineno)


def _calls(tree: Tree, *names: str) -> list[ast.Call]:
    return [each for each in tree.of(ast.Call) if last_name(each.func) in names]


def _data(sampler: ast.Call) -> Iterator[str]:
    """Yield how the source says what a sampler shares out: ``data`` of ``range(len(data))``."""
    given = [*sampler.args[:1], *(each.value for each in sampler.keywords if each.arg == "dataset")]
    for each in given:
        yield ast.unparse(each)
        match each:
            case ast.Call(func=ast.Name(id="range"), args=[ast.Call(func=ast.Name(id="len"), args=[data])]):
                yield ast.unparse(data)


def _sizes(tree: Tree) -> Iterator[ast.expr]:
    """Yield the sizes of batches: of loaders that have a sampler, and of the parts that an order is cut into."""
    for call in _calls(tree, "DataLoader"):
        named = {each.arg: each.value for each in call.keywords}
        if "sampler" in named:
            yield from call.args[1:2]
            yield from (named[name] for name in ("batch_size",) if name in named)
    for call in _calls(tree, "split"):
        yield from call.args[:1]


def _factors(node: ast.expr) -> list[ast.expr]:
    match node:
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return [*_factors(left), *_factors(right)]
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub()):  # rounded up
            return _factors(left)
    return [node]


def _is_length(node: ast.expr, shared: set[str]) -> bool:
    """Whether an expression is the length of data that are shared out, or of the whole that a loader is of."""
    match node:
        case ast.Call(func=ast.Name(id="len"), args=[ast.Attribute(value=owner, attr="dataset")]):
            return not HELD_OUT.search(ast.unparse(owner))
        case ast.Call(func=ast.Name(id="len"), args=[data]):
            return ast.unparse(data) in shared
    return False


def _speaks_of_ranks(tree: Tree, size: ast.expr) -> bool:
    """Whether a size of batches is, or can be, one of all ranks: what its name is given says so, anywhere."""
    name = last_name(size) if isinstance(size, (ast.Name, ast.Attribute)) else ""
    given = [
        each.value
        for each in tree.nodes
        if isinstance(each, (ast.Assign, ast.AugAssign))
        and name
        and name in map(last_name, each.targets if isinstance(each, ast.Assign) else [each.target])
    ]
    return any(SEVERAL.search(ast.unparse(each)) or isinstance(each, ast.BinOp) for each in (size, *given))


def _whole(tree: Tree, node: ast.expr) -> ast.expr:
    """Return the expression that a count is a part of: times epochs, rounded."""
    above = tree.parents.get(node)
    while isinstance(above, (ast.BinOp, ast.Call)):
        arithmetic = isinstance(above, ast.BinOp) and isinstance(above.op, (ast.Mult, ast.FloorDiv, ast.Add, ast.Sub))
        divides = isinstance(above, ast.BinOp) and above.right is node and isinstance(above.op, ast.FloorDiv)
        rounded = isinstance(above, ast.Call) and last_name(above.func) in ROUNDS
        if divides or not (arithmetic or rounded):
            break
        node, above = above, tree.parents.get(above)
    return node


def _counters(tree: Tree) -> set[str]:
    """Return the names of what counts this rank's steps: one more in each."""
    return {
        last_name(each.target)
        for each in tree.of(ast.AugAssign)
        if isinstance(each.op, ast.Add) and isinstance(each.value, ast.Constant) and each.value.value == 1
    } | {each.arg for one in tree.of(ast.Lambda) for each in one.args.args[:1]}
