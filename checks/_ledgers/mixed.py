"""Quotients of what one rank has counted and what all ranks have summed up."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ddpdoctor.check import Site, last_name

from .._evaluation.counts import bare, counts_ranks
from .._evaluation.metrics import part_around
from .flows import RANK, Flow, is_sum_of, names_in, shaped
from .tensor_parts import Taken, constant, first_place, parts_in, taken

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
    if (not summed and not parts) or counts_ranks(around, summed | set(parts), site._replace(line=around.lineno)):
        return None
    flow = Flow(around)
    if _skips(around):
        return None
    flow.together |= _handed(around) - summed
    whole = {name for name in summed if name in flow.roots}
    for node in ast.walk(around):
        match node:
            case ast.BinOp(op=ast.Div(), left=left, right=right) if node.lineno > site.line:
                found = _parts_of_one(node, parts, flow) or _both(node, bare(left), bare(right), whole, flow)
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


def summed_in(around: ast.AST) -> tuple[set[str], dict[str, list[Taken | None]]]:
    """Return the names that are added up, and of those of which parts are: which ones."""
    names: set[str] = set()
    parts: dict[str, list[Taken | None]] = {}
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
                parts.setdefault(name, []).append(taken(at))
    return names, {name: each for name, each in parts.items() if name not in names}


def _parts_of_one(node: ast.BinOp, parts: dict[str, list[Taken | None]], flow: Flow) -> Mixed | None:
    """Find a quotient of parts of one tensor: those above were added up, those below were not, or the other way."""
    for name, summed in parts.items():
        if None in summed:
            continue
        above, below = (parts_in(each, {name}, flow.around) for each in (node.left, node.right))
        sides = [{_is_summed(each, summed) for each in side} for side in (above, below)]
        if sides not in ([{True}, {False}], [{False}, {True}]):
            continue
        own, whole = (below, above) if sides[1] == {False} else (above, below)
        if all(_is_of_one(each, name, flow) for each in own):
            texts = ast.unparse(whole[0]), ast.unparse(own[0])
            return Mixed(ast.unparse(node), *texts, by_own_count=own is below, line=node.lineno)
    return None


def _is_summed(part: ast.Subscript, summed: list[Taken | None]) -> bool | None:
    """Whether a part was added up; None where its place is not written as a number."""
    place = first_place(part.slice)
    said = {each.has(place) for each in summed if each is not None} if place is not None else {None}
    return True if True in said else None if None in said else False


def _is_of_one(part: ast.Subscript, name: str, flow: Flow) -> bool:
    """Whether a part of a tensor is this rank's own, as far as the list says that the tensor is made of.

    Where parts are put in a row, the last one stands for what comes behind those that are added up.
    """
    made = [each for each in flow.values.get(name, ()) if isinstance(each, ast.Call)]
    lists = [each.args[0].elts for each in made if each.args and isinstance(each.args[0], (ast.List, ast.Tuple))]
    place = constant(part.slice)
    if not lists:  # made elsewhere, or filled place by place
        return place in {0, 1} or _is_filled(name, place, flow.around)
    in_a_row = last_name(made[0].func) in {"cat", "concat", "hstack"}
    at = -1 if in_a_row else place
    if at is None or len(lists) > 1 or at >= len(lists[0]):
        return False
    told = lists[0][at]
    sized = {each.id for each in ast.walk(told) if isinstance(each, ast.Name)}
    summed = any(is_sum_of(each, one) for each in lists[0] for one in sized)
    number = bare(told)
    return flow.counts_own(told, set()) or summed or (isinstance(number, ast.Name) and number.id in flow.totals)


def _is_filled(name: str, place: int | None, around: ast.AST) -> bool:
    """Whether a function adds to a place of a tensor, batch by batch."""
    return any(
        isinstance(each, ast.AugAssign) and ast.unparse(each.target) == f"{name}[{place}]" for each in ast.walk(around)
    )


def _both(node: ast.BinOp, left: ast.expr, right: ast.expr, whole: set[str], flow: Flow) -> Mixed | None:
    above, below = names_in(left), names_in(right)
    if not above or not below or (above | below) & flow.together:
        return None
    shared = flow.of(above) & flow.of(below) - {"model", "self", "torch", "F", "nn"}
    if above <= whole and not below & whole and shared and flow.counts_own(right, above):
        return Mixed(
            ast.unparse(node), ast.unparse(left), ast.unparse(shaped(right)), by_own_count=True, line=node.lineno
        )
    if (
        below <= whole
        and not above & whole
        and shared
        and above <= flow.totals
        and (all(flow.counts_own(ast.Name(id=each), above) for each in below))
    ):
        return Mixed(ast.unparse(node), ast.unparse(right), ast.unparse(left), by_own_count=False, line=node.lineno)
    return None
