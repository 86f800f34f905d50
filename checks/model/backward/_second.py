"""How a second backward came to a graph, read off the lines around it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from ddpdoctor.check import Tree, tree_of, variables_in

CARRIED, SUMMED, BEFORE = "carried", "summed", "before"
LOOPS = (ast.For, ast.While)


class Second(NamedTuple):
    """The way, the name that leads to the freed graph, the line that shows it, and the text of the failed line."""

    kind: str
    name: str
    line: int
    text: str
    last: str


def second_backward(file: str, line: int) -> list[Second]:
    """List the ways that the script shows, for the backward at a line; none where it is not there to be read."""
    tree = tree_of(file)
    calls = [each for each in _backwards(tree) if each.lineno <= line <= (each.end_lineno or 0)]
    if not calls:
        return []
    last = calls[-1]
    before = [each for each in calls[:-1] if not _keeps(each)] or list(_earlier(tree, last))
    ways = [Second(BEFORE, "", each.lineno, ast.unparse(each), ast.unparse(last)) for each in before[-1:]]
    loop = next((each for each in tree.above(last) if isinstance(each, LOOPS)), None)
    return [*ways, *(_over_steps(loop, last) if loop else ())]


def _backwards(tree: Tree) -> list[ast.Call]:
    return sorted(
        (each for each in tree.of(ast.Call) if isinstance(each.func, ast.Attribute) and each.func.attr == "backward"),
        key=lambda each: (each.end_lineno or 0, each.end_col_offset or 0),
    )


def _keeps(call: ast.Call) -> bool:
    return any(each.arg == "retain_graph" for each in call.keywords)


def _earlier(tree: Tree, last: ast.Call) -> Iterator[ast.Call]:
    """Yield the backwards above the failed one in blocks that it is in, which keep no graph."""
    around = set(tree.above(last))
    for each in _backwards(tree):
        owner = tree.parents.get(tree.statement(each) or each)
        if each.lineno < last.lineno and not _keeps(each) and owner in around and not isinstance(owner, ast.Module):
            yield each


def _over_steps(loop: ast.For | ast.While, last: ast.Call) -> Iterator[Second]:
    said = ast.unparse(last)
    wanted = {each.id for each in ast.walk(last.func) if isinstance(each, ast.Name)}
    for node in [each for inner in loop.body for each in ast.walk(inner)]:
        name = _grown(node)
        if name in wanted and not _begins_anew(loop, name):
            yield Second(SUMMED, name, node.lineno, ast.unparse(node), said)  # type: ignore[attr-defined]
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            yield from (Second(CARRIED, name, node.lineno, ast.unparse(node), said) for name in _handed_on(loop, node))


def _grown(node: ast.AST) -> str:
    """Return the name to which a statement adds: ``total += loss``, ``total = total + loss``."""
    match node:
        case ast.AugAssign(target=ast.Name(id=name), op=ast.Add()):
            return name
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.BinOp(op=ast.Add())) if name in variables_in(node.value):
            return name
    return ""


def _handed_on(loop: ast.For | ast.While, assign: ast.Assign) -> Iterator[str]:
    """Yield the names that a call takes and gives, and that nothing else in the loop sets."""
    given = {each.id for target in assign.targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    call = assign.value
    taken = {name for each in getattr(call, "args", ()) for name in variables_in(each)}
    taken |= {name for each in getattr(call, "keywords", ()) for name in variables_in(each.value)}
    for name in sorted(given & taken):
        if not _set_beside(loop, name, assign):
            yield name


def _begins_anew(loop: ast.For | ast.While, name: str) -> bool:
    """Whether the loop sets the name to something that is not made of it."""
    return any(
        isinstance(node, ast.Assign) and _sets(node, name) and name not in variables_in(node.value)
        for inner in loop.body
        for node in ast.walk(inner)
    )


def _set_beside(loop: ast.For | ast.While, name: str, but: ast.stmt) -> bool:
    heads = (
        {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)} if isinstance(loop, ast.For) else ()
    )
    return name in heads or any(
        node is not but and isinstance(node, ast.Assign) and _sets(node, name)
        for inner in loop.body
        for node in ast.walk(inner)
    )


def _sets(node: ast.Assign, name: str) -> bool:
    return any(isinstance(each, ast.Name) and each.id == name for target in node.targets for each in ast.walk(target))
