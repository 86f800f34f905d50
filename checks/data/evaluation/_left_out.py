"""Parts of an evaluation that are cut by the rank, and that together leave samples out, as the source says them."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from ddpdoctor.check import Site, last_name

from ..._evaluation.counts import WORLDS
from ..._evaluation.metrics import part_around
from ..._evaluation.quotients import WORLD
from ..._ledgers.flows import RANK, Flow

SAMPLES = (997, 1009)  # so many are taken for those that there are: both are prime
LEAST = 0.1  # of them, that are left out
DEEPEST = 4  # names
OPERATIONS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
FUNCTIONS: Mapping[str, Callable[..., int]] = {"min": min, "max": max, "int": int}


class LeftOut(NamedTuple):
    """A cut by the rank: what it says, its line, and which share of the samples no rank takes."""

    text: str
    site: Site
    share: float


def left_out(sites: list[Site], ranks: int, *, at_line: bool) -> LeftOut | None:
    """Return the first cut of these functions, or of these lines alone, that leaves more than a tenth out.

    It divides a length by what counts the ranks: a part that is short on purpose speaks of no rank there.
    """
    for site in sites:
        around = part_around(site)
        cuts = [*_cuts(around)]
        for text, parts, line in cuts:
            if at_line and line != site.line:
                continue
            shares = [_share(parts, Flow(around), ranks, samples) for samples in SAMPLES]
            known = [each for each in shares if each is not None]
            if len(known) == len(SAMPLES) and min(known) > LEAST:
                return LeftOut(text, site._replace(line=line), min(known))
    return None


def _cuts(around: ast.AST) -> Iterator[tuple[str, list[ast.expr | None], int]]:
    """Yield where parts begin and end and how far it is from sample to sample, of what speaks of the rank."""
    for node in ast.walk(around):
        match node:
            case ast.Subscript(slice=ast.Slice(lower=lower, upper=upper, step=step) as cut):
                parts, text = [lower, upper, step], ast.unparse(cut)
            case ast.Call(func=called, args=args) if last_name(called) in {"range", "arange", "islice"}:
                given = [each for each in args if not isinstance(each, ast.Starred)][-3:]
                parts = [None, given[0], None] if len(given) == 1 else [*given, None][:3]
                text = ast.unparse(node)
            case _:
                continue
        if any(each is not None and RANK.search(ast.unparse(each)) for each in parts):
            yield text, parts, node.lineno


class _UnknownError(Exception):
    """What an expression is computed from is not known."""


class _Reader:
    """Computes the expressions of a function for so many samples, on one of so many ranks."""

    def __init__(self, flow: Flow, ranks: int, samples: int) -> None:
        self.flow, self.ranks, self.samples, self.rank = flow, ranks, samples, 0
        self.lengths: set[str] = set()
        self.divides = False

    def value(self, node: ast.expr, depth: int = DEEPEST) -> int:
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.BinOp(op=op, left=left, right=right) if type(op) in OPERATIONS:
                self.divides |= isinstance(op, ast.FloorDiv) and _counts_ranks(right)
                other = self.value(right, depth)
                if other == 0 and isinstance(op, (ast.FloorDiv, ast.Mod)):
                    raise _UnknownError
                return OPERATIONS[type(op)](self.value(left, depth), other)
            case ast.Call(func=called, args=[ast.BinOp(op=ast.Div(), left=left, right=right)]) if (
                last_name(called) == "ceil"
            ):
                self.divides |= _counts_ranks(right)
                return math.ceil(self.value(left, depth) / (self.value(right, depth) or 1))
            case ast.Call(func=ast.Name(id="len")) | ast.Subscript(value=ast.Attribute(attr="shape")):
                self.lengths.add(ast.unparse(node))
                return self.samples
            case ast.Call(func=ast.Name(id=name), args=args) if name in FUNCTIONS and args:
                return FUNCTIONS[name](*(self.value(each, depth) for each in args))
        return self._named(node, depth)

    def _named(self, node: ast.expr, depth: int) -> int:
        name = last_name(node.func if isinstance(node, ast.Call) else node)
        if name in WORLD or WORLDS.search(name):
            return self.ranks
        if RANK.search(name):
            return self.rank
        given = self.flow.values.get(name, []) if isinstance(node, ast.Name) else []
        if len(given) != 1 or not depth:
            raise _UnknownError
        return self.value(given[0], depth - 1)


def _share(parts: list[ast.expr | None], flow: Flow, ranks: int, samples: int) -> float | None:
    """Return which share of so many samples the parts of all ranks leave out; None where that is not known."""
    reader, taken = _Reader(flow, ranks, samples), set[int]()
    try:
        for reader.rank in range(ranks):
            begin, end, step = (reader.value(each) if each is not None else None for each in parts)
            taken.update(range(samples)[begin:end:step])
    except (_UnknownError, ValueError):
        return None
    return 1 - len(taken) / samples if reader.divides and len(reader.lengths) == 1 else None


def _counts_ranks(node: ast.expr) -> bool:
    text = ast.unparse(node)
    return bool(WORLDS.search(text)) or bool({last_name(each) for each in ast.walk(node)} & WORLD)
