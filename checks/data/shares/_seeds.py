"""A seed with the rank in it, in the source of a sampler that is to permute alike on all ranks."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ddpdoctor.check import RANK_NAME, last_name, tree_of

SEEDS = {"manual_seed", "seed", "Random", "RandomState", "default_rng", "SeedSequence", "Generator", "PCG64"}
RANK = re.compile(rf"{RANK_NAME.pattern}|get_rank")


@dataclass(frozen=True, slots=True)
class RankSeed:
    """A line that seeds with the rank, as it is, and as it would be without it."""

    line: int
    before: str
    after: str


def seed_with_rank(file: str, kind: str) -> RankSeed | None:
    """Return the first line of a class that seeds a generator with the rank; None where it cannot be left out."""
    classes = [each for each in tree_of(file).of(ast.ClassDef) if each.name == kind]
    for call in (node for each in classes for node in ast.walk(each) if isinstance(node, ast.Call)):
        given = [*call.args, *(each.value for each in call.keywords)] if last_name(call.func) in SEEDS else []
        for node, kept in [pair for each in given for pair in _without_rank(each)][-1:]:  # the innermost
            if node.lineno == node.end_lineno and node.end_col_offset is not None:
                text = linecache.getline(file, node.lineno).rstrip().encode()
                after = text[: node.col_offset] + ast.unparse(kept).encode() + text[node.end_col_offset :]
                return RankSeed(node.lineno, text.decode(), after.decode())
    return None


def _without_rank(given: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield sums and tuples that have a part with the rank in it, each with what is left without that part."""
    for node in ast.walk(given):
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.BitXor)):
            kept = [each for each in (node.left, node.right) if not _has_rank(each)]
            if len(kept) == 1:
                yield node, kept[0]
        elif isinstance(node, (ast.Tuple, ast.List)):
            parts = [each for each in node.elts if not _has_rank(each)]
            if parts and len(parts) < len(node.elts):
                yield node, type(node)(parts, ast.Load())


def _has_rank(node: ast.expr) -> bool:
    return any(RANK.fullmatch(last_name(each)) for each in ast.walk(node))
