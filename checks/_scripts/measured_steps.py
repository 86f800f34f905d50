"""Where a source measures its steps by a number: divides a counter of steps by it, or compares the two."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import last_name

if TYPE_CHECKING:
    from ddpdoctor.check import Tree

TELLS = {"print", "info", "debug", "log", "write", "set_description", "set_postfix", "format"}
DEEP = 3


def use(tree: Tree, whole: ast.expr, counters: set[str]) -> ast.expr | None:
    """Return where a step is divided by a count, or compared with it: as it stands there, or by its name."""
    if (found := _measured(tree, whole, counters)) is not None:
        return found
    for name in _named(tree, whole):
        reads = [each for each in tree.nodes if isinstance(each, (ast.Name, ast.Attribute)) and last_name(each) == name]
        for each in reads:
            found = _measured(tree, each, counters) or _handed(tree, each, counters)
            if found is not None:
                return found
    return None


def _named(tree: Tree, whole: ast.expr) -> Iterator[str]:
    """Yield the name that a count is given."""
    above = tree.parents.get(whole)
    if isinstance(above, ast.Tuple):
        statement = tree.parents.get(above)
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if isinstance(target, ast.Tuple) and len(target.elts) == len(above.elts):
            yield last_name(target.elts[above.elts.index(whole)])
    elif isinstance(above, ast.Assign):
        yield from map(last_name, above.targets)


def _measured(tree: Tree, node: ast.expr, counters: set[str]) -> ast.expr | None:
    """Return the quotient, or the comparison, of a step and a number; None where it is told alone."""
    above = tree.parents.get(node)
    for _ in range(DEEP):
        found: ast.expr | None = None
        match above:
            case ast.BinOp(op=ast.Div() | ast.FloorDiv(), left=left, right=right) if _holds(right, node):
                found = above if _counts(left, counters) else None
            case ast.Compare(left=left, comparators=[right]):
                other = right if _holds(left, node) else left
                found = above if _counts(other, counters) else None
            case ast.BinOp() | ast.Call():
                pass
            case _:
                return None
        if found is not None:
            is_end = isinstance(tree.parents.get(found), ast.While)  # how long to train
            return None if is_end or _is_told(tree, found) else found
        node, above = above, tree.parents.get(above)
    return None


def _handed(tree: Tree, node: ast.expr, counters: set[str]) -> ast.expr | None:
    """Return the call that is handed a step and a count, of a function that divides the one by the other."""
    call = tree.parents.get(node)
    if not isinstance(call, ast.Call) or node not in call.args:
        return None
    steps = [at for at, each in enumerate(call.args) if last_name(each) in counters]
    for function in tree.of(ast.FunctionDef):
        names = [each.arg for each in function.args.args]
        if function.name != last_name(call.func) or len(names) < len(call.args) or not steps:
            continue
        step, count = names[steps[0]], names[call.args.index(node)]
        inside = [each for each in ast.walk(function) if isinstance(each, ast.Name) and each.id == count]
        if any(_measured(tree, each, {step}) is not None for each in inside):
            return call
    return None


def _counts(node: ast.expr, counters: set[str]) -> bool:
    names = {last_name(each) for each in ast.walk(node) if isinstance(each, (ast.Name, ast.Attribute))}
    return bool(names & counters)


def _holds(node: ast.expr, part: ast.expr) -> bool:
    return any(each is part for each in ast.walk(node))


def _is_told(tree: Tree, node: ast.AST) -> bool:
    above = tree.above(node)
    return any(
        isinstance(each, ast.JoinedStr) or (isinstance(each, ast.Call) and last_name(each.func) in TELLS)
        for each in above
    )
