"""What a function returns that comes from one rank's batches, beside what all ranks have put together."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ddpdoctor.check import Site, last_name

from ..._evaluation.counts import PUT_TOGETHER
from ..._evaluation.metrics import part_around
from ..._ledgers.flows import RANK, Flow, names_in
from ..._ledgers.mixed import summed_in

MEASURES = re.compile(r"time|perf_counter|monotonic|elapsed|memory|second|speed|throughput", re.IGNORECASE)
"""What says that a number is meant to be each rank's own."""
UPDATES = {"add", "update", "append", "extend", "add_batch"}
Function = (ast.FunctionDef, ast.AsyncFunctionDef)


class Own(NamedTuple):
    """Where a number is in a result, what it comes from, and the line that was to put it together."""

    path: str
    name: str
    line: int


def own_part(site: Site, apart: Sequence[str], alike: Sequence[str]) -> Own | None:
    """Find the variable that has made a part of a function's result differ; ``alike`` are parts that are the same."""
    around = part_around(site)
    returned = next((each for each in ast.walk(around) if isinstance(each, ast.Return) and _at(each, site)), None)
    if not isinstance(around, Function) or returned is None or returned.value is None or _asks_for_rank(around):
        return None
    flow = Flow(around)
    summed, parts = summed_in(around)
    together = summed | set(parts) | flow.together | set(_given(around))
    for path in apart:
        value = _part(returned.value, path)
        names = flow.of(names_in(value))
        if MEASURES.search(ast.unparse(value)) or any(map(MEASURES.search, names)):
            continue
        mine = names - flow.anew
        own = [each for each in _grown(around) if each in mine and not flow.of({each}) & together]
        mixes = bool(names & together)
        if own and (mixes or alike):
            return Own(path, own[0], _line(around, site, mixes=mixes))
    return None


def _at(node: ast.Return, site: Site) -> bool:
    return node.lineno <= site.line <= (node.end_lineno or 0)


def _asks_for_rank(around: ast.AST) -> bool:
    tests = [each.test for each in ast.walk(around) if isinstance(each, ast.If | ast.IfExp | ast.While)]
    return any(RANK.search(text := ast.unparse(each)) or "main" in text or "master" in text for each in tests)


def _given(around: ast.AST) -> Iterator[str]:
    """Yield the variables that a call is given which can put them together, or that such a method is called of."""
    for call in ast.walk(around):
        if not isinstance(call, ast.Call) or not PUT_TOGETHER.search(name := last_name(call.func)):
            continue
        if name in {"tensor", "stack", "cat", "as_tensor", "from_numpy"}:
            continue
        for given in (*call.args, *(each.value for each in call.keywords)):
            yield from names_in(given)
        if isinstance(call.func, ast.Attribute):
            yield from names_in(call.func.value)


def _part(value: ast.expr, path: str) -> ast.expr:
    """Return the expression that a part of a result is: one of a tuple, or of a dictionary; else the whole."""
    match value, re.match(r"\[(.+?)\]", path):
        case ast.Tuple(elts=parts), re.Match() as at if at[1].isdigit() and int(at[1]) < len(parts):
            return parts[int(at[1])]
        case ast.Dict(keys=keys, values=values), re.Match() as at:
            named = [one for key, one in zip(keys, values, strict=True) if isinstance(key, ast.Constant)
                     and repr(key.value) == at[1]]  # fmt: skip
            return named[0] if named else value
    return value


def _grown(around: ast.AST) -> list[str]:
    """Return the variables that grow batch by batch in a loop: sums, counts, meters and lists."""
    found: dict[str, None] = {}
    for loop in ast.walk(around):
        for node in ast.walk(loop) if isinstance(loop, ast.For) else ():
            match node:
                case (
                    ast.AugAssign(target=ast.Name(id=name))
                    | ast.AugAssign(target=ast.Subscript(value=ast.Name(id=name)))
                ):
                    found[name] = None
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr)) if attr in UPDATES or (
                    attr.endswith("_") and not attr.startswith("_")
                ):
                    found[name] = None
    return [*found]


def _line(around: ast.AST, site: Site, *, mixes: bool) -> int:
    """Return the line that puts the others together last, before the function returns; else that of the result."""
    lines = [
        each.lineno
        for each in ast.walk(around)
        if isinstance(each, ast.Call)
        and last_name(each.func) in {"all_reduce", "all_gather"}
        and each.lineno < site.line
    ]
    return max(lines, default=site.line) if mixes else site.line
