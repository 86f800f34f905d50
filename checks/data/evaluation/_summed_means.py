"""Means of which a sum over all ranks is told, as the source says it."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from ddpdoctor.check import Site, last_name

from ..._evaluation.counts import bare, counts_ranks
from ..._evaluation.metrics import part_around
from ..._ledgers.flows import Flow
from ._own_counts import LOADERS, added_up, quotients, returned

TELLS = {"step", "print", "info", "log", "debug", "add_scalar", "write", "set_postfix", "set_description"}
AROUND = {"tensor", "as_tensor", "FloatTensor", "stack"}
DEEPEST = 4  # assignments
MEANS = re.compile(r"(^|_)(mean|avg|average)(_|$)")


@dataclass(frozen=True, slots=True)
class SummedMean:
    """A mean of one rank, where it is computed, and where the sum of all ranks' is told."""

    mean: str
    computed: Site
    told: Site


def summed_mean(callers: tuple[tuple[str, int, str], ...]) -> SummedMean | None:
    """Find a mean that a line adds up over the ranks, and that is told as it is, there or where it is returned to."""
    computed: tuple[str, Site] | None = None
    for at, site in enumerate(Site(*each) for each in callers):
        around = part_around(site)
        if at and _hands_on(around, site):
            continue
        names = returned(around, site) if at else added_up(around, site.line)
        if not names or counts_ranks(around, names, site) or [*quotients(around, names, site.line)]:
            return None
        if not at:
            name = next(iter(names))
            computed = _mean_of(name, around, site, DEEPEST) or _promised(name, around, site)
            if computed is None:
                return None
        told = _told(around, names, site.line)
        if told and computed is not None:
            return SummedMean(*computed, site._replace(line=told))
    return None


def _hands_on(around: ast.AST, site: Site) -> bool:
    """Whether a line returns what it calls, as it is."""
    returns = [node for node in ast.walk(around) if isinstance(node, ast.Return) and node.value is not None]
    at = [node for node in returns if node.lineno <= site.line <= (node.end_lineno or 0)]
    return any(isinstance(bare(node.value), ast.Call) for node in at if node.value is not None)


def _mean_of(name: str, around: ast.AST, site: Site, depth: int) -> tuple[str, Site] | None:
    """Return the expression that computes a name as a mean of this rank's own, and its line."""
    assigned = [
        node
        for node in ast.walk(around)
        if isinstance(node, ast.Assign) and node.lineno < site.line and name in map(ast.unparse, node.targets)
    ]
    changed = [node.lineno for node in ast.walk(around) if isinstance(node, ast.AugAssign)
               and node.lineno < site.line and ast.unparse(node.target) == name]  # fmt: skip
    if not assigned or not depth:
        return None
    last = max(assigned, key=lambda node: node.lineno)
    if any(line > last.lineno for line in changed):
        return None
    value, there = _inner(last.value), site._replace(line=last.lineno)
    if _is_mean(value, around) or _is_by_own_count(value, around):
        return ast.unparse(value), there
    return _mean_of(value.id, around, there, depth - 1) if isinstance(value, ast.Name) else None


def _promised(name: str, around: ast.AST, site: Site) -> tuple[str, Site] | None:
    """Return the function that adds up what it is given, where its name says that it returns the mean."""
    if not isinstance(around, ast.FunctionDef) or not MEANS.search(around.name):
        return None
    parameters = {each.arg for each in around.args.args}
    assigned = [each for each in ast.walk(around) if isinstance(each, ast.Assign) and each.lineno < site.line
                and name in map(ast.unparse, each.targets)]  # fmt: skip
    values = [_inner(each.value) for each in assigned]
    given = [each.id for each in values if isinstance(each, ast.Name)] if values else [name]
    if len(given) != max(len(values), 1) or not set(given) <= parameters:
        return None
    return f"what {around.name}() is given", site._replace(line=around.lineno)


def _inner(value: ast.expr) -> ast.expr:
    while True:
        inner = bare(value)
        if isinstance(inner, ast.Call) and last_name(inner.func) in AROUND and inner.args:
            inner = inner.args[0]
        if inner is value:
            return value
        value = inner


def _is_mean(value: ast.expr, around: ast.AST) -> bool:
    """Whether an expression is a mean over what this rank has gone through, whatever the others have."""
    match value:
        case ast.Call(func=ast.Attribute(attr="mean" | "fmean")):
            return True
        case ast.BinOp(op=ast.Div(), left=summed, right=ast.Call(func=ast.Name(id="len"), args=[counted])):
            name = ast.unparse(counted)
            loader = "dataset" not in name and bool(LOADERS.search(name.rpartition(".")[2]))
            return loader or _grows_in_loop(ast.unparse(bare(summed)), name, around)
    return False


def _grows_in_loop(name: str, over: str, around: ast.AST) -> bool:
    """Whether a sum is added to once for each of what its divisor is the length of."""
    loops = [each for each in ast.walk(around) if isinstance(each, ast.For) and ast.unparse(each.iter) == over]
    added = [part for loop in loops for part in loop.body if isinstance(part, ast.AugAssign)]
    return any(isinstance(each.op, ast.Add) and ast.unparse(each.target) == name for each in added)


def _is_by_own_count(value: ast.expr, around: ast.AST) -> bool:
    """Whether a sum of this rank's is divided by what it has counted batch by batch."""
    match value:
        case ast.BinOp(op=ast.Div(), left=ast.Name(), right=ast.Name() as counted):
            return Flow(around).counts_own(counted, set())
    return False


def _told(around: ast.AST, names: set[str], line: int) -> int:
    """Return the line that prints the sum, or compares it, as it is."""
    known = set(names)
    nodes = [node for node in ast.walk(around) if getattr(node, "lineno", 0) >= line]
    for node in sorted(nodes, key=lambda each: (each.lineno, each.col_offset)):  # type: ignore[attr-defined]
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if ast.unparse(bare(value)) in known:
                known.add(name)
            case ast.Call(func=called) if last_name(called) in TELLS:
                if known & {ast.unparse(each) for each in ast.walk(node)}:
                    return node.lineno
            case ast.Compare(left=left, comparators=others):
                if known & {ast.unparse(bare(each)) for each in (left, *others)}:
                    return node.lineno
    return 0
