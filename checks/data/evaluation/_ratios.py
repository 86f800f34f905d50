"""Metrics of a source that are quotients of counts: the mean of the ranks' quotients is not the quotient of all."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpdoctor.check import Site, last_name, tree_of

from ..._evaluation.counts import bare
from ..._evaluation.metrics import part_around

FOLLOWED = 4  # names
SAME = {"clone", "detach", "to", "float", "double", "cpu", "cuda", "contiguous"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def quotient(site: Site) -> str:
    """Return the function that gives what a line reduces, if it divides counts by others that it has beside them.

    Followed is the name that is given to the communication, through assignments, copies and one parameter.
    """
    around = part_around(site)
    given = [
        node.args[0]
        for node in ast.walk(around)
        if isinstance(node, ast.Call) and node.lineno == site.line and "reduce" in ast.unparse(node.func) and node.args
    ]
    return next((found for each in given if (found := _given(each, site, FOLLOWED))), "")


def _given(value: ast.expr, site: Site, depth: int) -> str:
    """Return the name of such a function whose result an expression is."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in SAME:
        value = value.func.value
    if isinstance(value, ast.Call):
        name = last_name(value.func)
        return name if any(map(_divides_counts, _functions(site.file, name))) else ""
    if not depth or not isinstance(value, ast.Name):
        return ""
    return next((found for each, at in _sources(value.id, site) if (found := _given(each, at, depth - 1))), "")


def _sources(name: str, site: Site) -> Iterator[tuple[ast.expr, Site]]:
    """Yield what a name was given last, in its function or by a caller, each with its line."""
    around = part_around(site)
    assigned = [
        node
        for node in ast.walk(around)
        if isinstance(node, ast.Assign) and node.lineno < site.line and name in map(ast.unparse, node.targets)
    ]
    own = [
        each
        for each in assigned
        if name not in {part.id for part in ast.walk(each.value) if isinstance(part, ast.Name)}
    ]
    if own:
        last = max(own, key=lambda node: node.lineno)
        yield last.value, site._replace(line=last.lineno)
    elif isinstance(around, Function):
        places = [at for at, each in enumerate(around.args.args) if each.arg == name]
        for call in tree_of(site.file).of(ast.Call) if places else ():
            if last_name(call.func) == around.name and len(call.args) > places[0]:
                yield call.args[places[0]], Site(site.file, call.lineno, "")


def _functions(file: str, name: str) -> list[Function]:
    return [each for each in ast.walk(tree_of(file).module) if isinstance(each, Function) and each.name == name]


def _divides_counts(function: Function) -> bool:
    """Whether a function returns a quotient of two things that are made of the same attribute, or parameter."""
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.Div):
            above, below = (_made_of(function, side, FOLLOWED) for side in (node.value.left, node.value.right))
            if above & below:
                return True
    return False


def _made_of(function: Function, value: ast.expr, depth: int) -> set[str]:
    """Return the attributes of the object that an expression is computed from, through local names."""
    found = {
        node.attr
        for node in ast.walk(value)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    }
    names = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
    for node in ast.walk(function) if depth else ():
        if isinstance(node, ast.Assign) and names & {ast.unparse(each) for each in node.targets}:
            found |= _made_of(function, node.value, depth - 1)
    return found


CONTENT = {"bincount", "index_add_", "scatter_add_", "add_at", "histc", "one_hot"}
"""What counts by what samples are, so that no two ranks have the same."""


def ratio(site: Site) -> str:
    """Return the quotient of two sums that a line reduces, where its divisor counts by what the samples are.

    ``recall = hits / of_class``: the mean over the ranks of such quotients is not the quotient of all. Followed is the
    name that is given to the communication.
    """
    around = part_around(site)
    given = [each.args[0] for each in _reducing(around, site.line)]
    for value in given:
        built = [one for one, _ in _sources(value.id, site)] if isinstance(value, ast.Name) else []
        for part in (node for each in (value, *built) for node in ast.walk(each)):
            match part:
                case ast.BinOp(op=ast.Div(), left=left, right=right):
                    above, below = (_grown_name(side, around) for side in (left, right))
                    if above and below and above != below and _counts_by_content(around, below):
                        return ast.unparse(part)
    return ""


def _reducing(around: ast.AST, line: int) -> list[ast.Call]:
    return [
        node
        for node in ast.walk(around)
        if isinstance(node, ast.Call)
        and node.lineno <= line <= (node.end_lineno or 0)
        and "reduce" in ast.unparse(node.func)
        and node.args
    ]


def _grown_name(side: ast.expr, around: ast.AST) -> str:
    """Return the name that a side of a quotient is, if it is a sum that grows in the function."""
    side = bare(side)
    while isinstance(side, ast.Call) and isinstance(side.func, ast.Attribute) and side.func.attr.startswith("clamp"):
        side = bare(side.func.value)
    return side.id if isinstance(side, ast.Name) and _growths(around, side.id) else ""


def _growths(around: ast.AST, name: str) -> list[ast.AST]:
    """Return what adds to a sum: ``sums += x``, ``sums[c] += x``, ``sums.index_add_(0, at, x)``."""
    found: list[ast.AST] = []
    for node in ast.walk(around):
        match node:
            case ast.AugAssign(op=ast.Add(), target=ast.Name(id=held)) if held == name:
                found.append(node)
            case ast.AugAssign(op=ast.Add(), target=ast.Subscript(value=ast.Name(id=held))) if held == name:
                found.append(node)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=held), attr=attr)) if held == name and attr in CONTENT:
                found.append(node)
    return found


def _counts_by_content(around: ast.AST, name: str) -> bool:
    return any(
        isinstance(part, ast.Compare) or (isinstance(part, ast.Call) and last_name(part.func) in CONTENT)
        for growth in _growths(around, name)
        for part in ast.walk(growth)
    )
