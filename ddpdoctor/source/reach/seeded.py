"""Seeds with the rank in them: what is drawn afterwards is another on each rank, for certain."""

from __future__ import annotations

import ast
import enum
from typing import TYPE_CHECKING

from ddpdoctor.source.reach.guards import guards
from ddpdoctor.source.reach.rank_facts import Fact, fact, is_process_number
from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.values.arguments import argument
from ddpdoctor.source.values.bound import definition

if TYPE_CHECKING:
    from ddpdoctor.source.text.tree import Function, Tree

SEEDS = frozenset({
    "torch.manual_seed", "torch.random.manual_seed", "torch.cuda.manual_seed", "torch.cuda.manual_seed_all",
    "numpy.random.seed", "random.seed",
})  # fmt: skip
"""What seeds one of the generators that a process has."""
PARTS = (ast.Add, ast.Sub, ast.Mult, ast.BitXor)
NUMBERS = (Fact.RANK, Fact.LOCAL_RANK)


class Seed(enum.Enum):
    """What a call does to a generator."""

    BY_RANK = "seeds it with the rank"
    OTHERWISE = "seeds it with something else, or can"


def seeded_by_rank(tree: Tree, node: ast.expr, seeds: frozenset[str]) -> ast.Call | None:
    """Return the call, before a node in its function, by which each rank has seeded a generator with its number.

    None where another one stands between them that can seed it anew.
    """
    function = tree.function(node)
    before = [each for each in tree.of(ast.Call) if each.lineno < node.lineno and tree.function(each) is function]
    for call in sorted(before, key=lambda each: (each.lineno, each.col_offset), reverse=True):
        found = _seed(tree, call, seeds)
        if found is not None:
            is_certain = found is Seed.BY_RANK and not any(each.is_rankish(tree) for each in guards(tree, call))
            return call if is_certain else None
    return None


def _seed(tree: Tree, call: ast.Call, seeds: frozenset[str]) -> Seed | None:
    """Return what a call does to the generator that these seed; None where it is about something else."""
    path = resolve(tree, call.func) or ""
    if path in seeds:
        return Seed.BY_RANK if call.args and _has_rank(tree, call.args[0]) else Seed.OTHERWISE
    if path in SEEDS:
        return None
    found = definition(tree, call.func)
    if found is None:
        return Seed.OTHERWISE if "seed" in ast.unparse(call.func).lower() else None
    there, function = found
    inner = [each for each in ast.walk(function) if isinstance(each, ast.Call)]
    sown = [each for each in inner if resolve(there, each.func) in seeds]
    if sown and all(each.args and _is_of_rank(tree, call, there, function, each.args[0]) for each in sown):
        return Seed.BY_RANK
    return Seed.OTHERWISE if any("seed" in ast.unparse(each.func).lower() for each in inner) and sown else None


def _is_of_rank(tree: Tree, call: ast.Call, there: Tree, function: Function, seed: ast.expr) -> bool:
    """Whether a function seeds with what a call hands it that has the rank in it, or with the rank that it knows."""
    bindings = there.lookup(seed.id, seed) if isinstance(seed, ast.Name) else []
    if len(bindings) == 1 and isinstance(bindings[0].node, ast.arg):
        handed = argument(call, function, bindings[0].node.arg, spawned=False)
        return handed is not None and _has_rank(tree, handed)
    return _has_rank(there, seed)


def _has_rank(tree: Tree, node: ast.expr) -> bool:
    """Whether a number is calculated from the rank, so that no two ranks have the same."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, PARTS):
        return _has_rank(tree, node.left) is not _has_rank(tree, node.right)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "int" and node.args:
        return _has_rank(tree, node.args[0])
    return fact(tree, node) in NUMBERS or is_process_number(tree, node)
