"""Quotients of what one rank has counted and what all ranks have summed up."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ddpdoctor.check import Site, last_name

from .._evaluation.counts import bare, counts_ranks
from .._evaluation.metrics import part_around
from .flows import RANK, Flow, names_in, part_taken

SUMS = {"all_reduce", "reduce"}


@dataclass(frozen=True, slots=True)
class Mixed:
    """A quotient of what was added up over all ranks and what one rank has, or the other way round, and its line."""

    quotient: str
    summed: str
    own: str
    by_own_count: bool
    line: int


def mixed(site: Site) -> Mixed | None:
    """Find a quotient of both kinds, after the line that adds something up; None where the number of ranks is known."""
    around = part_around(site)
    if not isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return None
    summed, parts = summed_in(around)
    if (not summed and not parts) or counts_ranks(around, summed | set(parts), around.lineno):
        return None
    flow = Flow(around)
    if _skips(around):
        return None
    flow.together |= _handed(around) - summed
    whole = {name for name in summed if name in flow.roots}
    for node in ast.walk(around):
        match node:
            case ast.BinOp(op=ast.Div(), left=left, right=right) if node.lineno > site.line:
                found = _parts_of_one(node, parts) or _both(node, bare(left), bare(right), whole, flow)
                if found is not None:
                    return found
    return None


def _skips(around: ast.AST) -> bool:
    """Whether a function leaves out what is other ranks', and counts beside that: it can be the whole."""
    grown = {each for each in ast.walk(around) if isinstance(each, ast.AugAssign)}
    for node in ast.walk(around):
        if isinstance(node, ast.If) and RANK.search(ast.unparse(node.test)):
            inside = {part for each in node.body for part in ast.walk(each)}
            if any(isinstance(each, ast.Continue) for each in inside):
                return True
            if "%" in ast.unparse(node.test) and not (grown and grown <= inside):
                return True
    return False


def _handed(around: ast.AST) -> set[str]:
    """Return the names that a call in a line of its own is given, which can change what they hold."""
    calls = [each.value for each in ast.walk(around) if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call)]
    given = [part for each in calls if last_name(each.func) not in {"print", "info", *SUMS} for part in each.args]
    return {each.id for each in given if isinstance(each, ast.Name)}


def summed_in(around: ast.AST) -> tuple[set[str], dict[str, set[str]]]:
    """Return the names that are added up, and of those of which a part is: which one."""
    names: set[str] = set()
    parts: dict[str, set[str]] = {}
    loops = {
        each.target.id: each.iter
        for each in ast.walk(around)
        if isinstance(each, ast.For)
        and isinstance(each.target, ast.Name)
        and isinstance(each.iter, (ast.Tuple, ast.List))
    }
    for node in ast.walk(around):
        match node:
            case ast.Call(func=called, args=[given, *_]) if last_name(called) in SUMS:
                pass
            case _:
                continue
        match given:
            case ast.Name(id=name) if name in loops:
                names |= {each.id for each in ast.walk(loops[name]) if isinstance(each, ast.Name)}
            case ast.Name(id=name):
                names.add(name)
            case ast.Subscript(value=ast.Name(id=name), slice=at):
                parts.setdefault(name, set()).add(part_taken(at))
    return names, {name: each for name, each in parts.items() if name not in names}


def _parts_of_one(node: ast.BinOp, parts: dict[str, set[str]]) -> Mixed | None:
    match bare(node.left), bare(node.right):
        case (
            ast.Subscript(value=ast.Name(id=one), slice=ast.Constant(value=int(first))),
            ast.Subscript(value=ast.Name(id=other), slice=ast.Constant(value=int(second))),
        ) if one == other and one in parts and "?" not in parts[one]:
            above, below = str(first) in parts[one], str(second) in parts[one]
            if above != below:
                texts = ast.unparse(bare(node.left)), ast.unparse(bare(node.right))
                return Mixed(ast.unparse(node), *(texts if above else texts[::-1]), above, node.lineno)
    return None


def _both(node: ast.BinOp, left: ast.expr, right: ast.expr, whole: set[str], flow: Flow) -> Mixed | None:
    above, below = names_in(left), names_in(right)
    if not above or not below or (above | below) & flow.together:
        return None
    shared = flow.of(above) & flow.of(below) - {"model", "self", "torch", "F", "nn"}
    if above <= whole and not below & whole and shared and flow.counts_own(right, above):
        return Mixed(ast.unparse(node), ast.unparse(left), ast.unparse(right), by_own_count=True, line=node.lineno)
    if (
        below <= whole
        and not above & whole
        and shared
        and above <= flow.totals
        and (all(flow.counts_own(ast.Name(id=each), above) for each in below))
    ):
        return Mixed(ast.unparse(node), ast.unparse(right), ast.unparse(left), by_own_count=False, line=node.lineno)
    return None
