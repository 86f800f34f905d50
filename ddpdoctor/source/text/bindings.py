"""What gives a name its value: assignments, loops, imports, parameters, and the like."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

WITHOUT_PLACE = frozenset(
    each
    for base in (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)
    for each in base.__subclasses__()
)
"""Nodes that stand for a word: each is one object, of which a tree has many."""
BINDERS = frozenset(
    (
        ast.Assign,
        ast.AnnAssign,
        ast.NamedExpr,
        ast.AugAssign,
        ast.For,
        ast.AsyncFor,
        ast.comprehension,
        ast.withitem,
        ast.ExceptHandler,
        ast.FunctionDef,
        ast.AsyncFunctionDef,
        ast.ClassDef,
        ast.arg,
        ast.Import,
        ast.ImportFrom,
        ast.MatchAs,
        ast.MatchStar,
        ast.Delete,
    )
)


@dataclass(frozen=True, slots=True)
class Binding:
    """Something that gives a name a value: ``value`` is the expression, None where it is not one that can be read.

    ``node`` is the statement, the parameter or the import; ``path`` the dotted name that an import binds. Of what is
    taken of a call's result (``rank, size = setup()``), ``whole`` is the call, and ``part`` the place in its result.
    """

    node: ast.AST
    value: ast.expr | None = None
    path: str = ""
    whole: ast.Call | None = None
    part: int = 0

    @property
    def line(self) -> int:
        """The line on which it stands."""
        return int(getattr(self.node, "lineno", 0))


def dotted(node: ast.AST) -> str | None:
    """Return ``a.b.c`` of names and attributes; None for anything else."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def last_name(node: ast.AST) -> str:
    """Return the last name of an expression such as ``a().b.name``; empty where there is none."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def variables_in(node: ast.AST) -> set[str]:
    """Return the names of the variables that occur in a node."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def spans(node: ast.stmt | ast.expr, line: int) -> bool:
    """Whether a line is one of those that a node takes up."""
    return node.lineno <= line <= (node.end_lineno or 0)


def bound(node: ast.AST) -> Iterator[tuple[str | ast.expr, Binding]]:  # noqa: C901, PLR0912 - one case a statement
    """Yield what a node binds: a name, or the attribute that it is stored in."""
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from _targets(target, value, node)
        case ast.AnnAssign(target=target, value=value) if value is not None:
            yield from _targets(target, value, node)
        case ast.NamedExpr(target=target, value=value):
            yield from _targets(target, value, node)
        case ast.AugAssign(target=target):
            yield from _targets(target, None, node)
        case ast.For(target=target) | ast.AsyncFor(target=target) | ast.comprehension(target=target):
            yield from _targets(target, None, node)
        case ast.withitem(optional_vars=target) if target is not None:
            yield from _targets(target, None, node)
        case ast.ExceptHandler(name=name) if name:
            yield name, Binding(node)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name, Binding(node)
        case ast.arg(arg=name):
            yield name, Binding(node)
        case ast.Import(names=names):
            for each in names:
                first = each.name.partition(".")[0]
                yield each.asname or first, Binding(node, path=each.name if each.asname else first)
        case ast.ImportFrom(names=names, level=level):
            for each in names:
                path = "." * level + ".".join([*([node.module] if node.module else []), each.name])
                yield each.asname or each.name, Binding(node, path=path)
        case ast.MatchAs(name=name) | ast.MatchStar(name=name) if name:
            yield name, Binding(node)
        case ast.Delete(targets=targets):
            for target in targets:
                yield from _targets(target, None, node)


def _targets(target: ast.expr, value: ast.expr | None, node: ast.AST) -> Iterator[tuple[str | ast.expr, Binding]]:
    if isinstance(target, ast.Name):
        yield target.id, Binding(node, value)
    elif isinstance(target, ast.Attribute):
        yield target, Binding(node, value)
    elif isinstance(target, ast.Starred):
        yield from _targets(target.value, None, node)
    elif isinstance(target, (ast.Tuple, ast.List)):
        values: list[ast.expr | None] = [None] * len(target.elts)
        if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
            values = [*value.elts]
        has_star = any(isinstance(each, ast.Starred) for each in target.elts)
        whole = value if isinstance(value, ast.Call) and not has_star else None
        for place, (each, part) in enumerate(zip(target.elts, values, strict=True)):
            if whole is not None and isinstance(each, (ast.Name, ast.Attribute)):
                yield each.id if isinstance(each, ast.Name) else each, Binding(node, None, "", whole, place)
            else:
                yield from _targets(each, part, node)
