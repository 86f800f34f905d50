"""Parts of data that a script cuts by the rank, as the source says it."""

from __future__ import annotations

import ast

from ddpdoctor.check import Site, last_name, tree_of

from .._evaluation.metrics import part_around
from .flows import RANK, Flow, names_in


def made_of_share(site: Site) -> bool:
    """Whether what a line makes is made of a part that is cut by the rank: ``Subset(data, range(rank, n, world))``.

    The part can be an attribute that another method of the class has made.
    """
    around = part_around(site)
    flow = Flow(around)
    for node in ast.walk(around):
        if _is_statement_at(node, site.line):
            made = node.iter if isinstance(node, ast.For) else node.value  # type: ignore[attr-defined]
            names = names_in(made) if made is not None else set()
            values = [made, *(value for name in flow.of(names) for value in flow.values.get(name, ()))]
            values += [each for value in values if value is not None for each in _held(value, site)]
            if any(is_cut(part) for value in values if value is not None for part in ast.walk(value)):
                return True
    return False


def _is_statement_at(node: ast.AST, line: int) -> bool:
    if isinstance(node, ast.For):
        return node.iter.lineno <= line <= (node.iter.end_lineno or 0)
    return isinstance(node, (ast.Assign, ast.Return, ast.Expr)) and node.lineno <= line <= (node.end_lineno or 0)


def _held(value: ast.expr, site: Site) -> list[ast.expr]:
    """Return what the attributes of the object that an expression reads were given, where that was once in the file."""
    names = {
        each.attr
        for each in ast.walk(value)
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "self"
    }
    given: dict[str, list[ast.expr]] = {}
    for assigned in tree_of(site.file).of(ast.Assign) if names else ():
        for target in assigned.targets:
            if isinstance(target, ast.Attribute) and target.attr in names:
                given.setdefault(target.attr, []).append(assigned.value)
    return [values[0] for values in given.values() if len(values) == 1]


def is_cut(node: ast.AST) -> bool:
    """Whether an expression takes a rank's part: ``samples[rank::world]``, ``range(rank, n, world)``."""
    match node:
        case ast.Slice():
            return bool(RANK.search(ast.unparse(node)))
        case ast.Call(func=called, args=args) if last_name(called) in {"range", "islice", "arange"}:
            return any(RANK.search(ast.unparse(each)) for each in args)
    return False
