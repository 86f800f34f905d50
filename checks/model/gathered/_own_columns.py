"""Where a source takes or masks the diagonal of a product of a rank's own rows with those of all ranks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ._gathered_products import assigned, product_of

if TYPE_CHECKING:
    from ddpdoctor.check import Script

MASKS = {"masked_fill", "masked_fill_", "where", "masked_select"}
DIAGONALS = {"fill_diagonal_", "diag", "diagonal"}
RANK = re.compile(r"rank|world|offset|start|first", re.IGNORECASE)
PAIR = 2


@dataclass(frozen=True, slots=True)
class OwnColumn:
    """A ``node`` that means the diagonal ``of`` a ``product``, what is ``right`` there, and how it is written."""

    node: ast.expr
    of: ast.expr
    product: ast.expr
    right: str
    diff: str


def own_columns(script: Script) -> Iterator[OwnColumn]:
    """Find them, where no test or number that speaks of the rank is around."""
    found: list[ast.Call | ast.Subscript] = [*script.nodes(ast.Call), *script.nodes(ast.Subscript)]
    for node in found:
        around = script.function(node)
        of = _of(script, node, around) if around is not None else None
        if of is None or around is None or not isinstance(of, ast.Name):
            continue
        tests = [each.test for each in ast.walk(around) if isinstance(each, (ast.If, ast.IfExp))]
        if any(RANK.search(ast.unparse(each)) for each in tests):
            continue
        product = product_of(script, of, around, node.lineno)
        if product is not None:
            name = of.id
            right = f"{name}[rows, rows + dist.get_rank() * len(rows)]"
            diff = (
                f"+rows = torch.arange(len({name}), device={name}.device)\n+{right}   # instead of {script.code(node)}"
            )
            yield OwnColumn(node, of, product, right, diff)


def _of(script: Script, node: ast.Call | ast.Subscript, around: ast.AST) -> ast.expr | None:
    """Return what a node means the diagonal of; None where it means none, or begins at a column of its own."""
    match node:
        case ast.Subscript(value=of, slice=ast.Tuple(elts=[one, other])):
            return of if all(_counts(script, each, around) for each in (one, other)) else None
        case ast.Call(func=ast.Attribute(value=of, attr="fill_diagonal_"), args=[_]):
            return of
        case ast.Call(func=ast.Attribute(value=of, attr="diag" | "diagonal"), args=[], keywords=[]):
            return of
        case ast.Call(func=called, args=[of]) if script.resolve(called) in {"torch.diag", "torch.diagonal"}:
            return of
        case ast.Call(func=ast.Attribute(value=of, attr=name), args=[mask, *_]) if name in MASKS:
            return of if _is_eye(script, mask, around) else None
    return None


def _counts(script: Script, index: ast.expr, around: ast.AST) -> bool:
    """Whether an index counts from 0: ``torch.arange(n)``, ``range(n)``, or a variable that was given only that."""
    index = _held(index, around)
    is_range = (
        isinstance(index, ast.Call) and len(index.args) == 1 and isinstance(index.func, (ast.Name, ast.Attribute))
    )
    name = script.resolve(index.func) if isinstance(index, ast.Call) else None
    return is_range and name in {"torch.arange", "range", "builtins.range"} and not RANK.search(ast.unparse(index))


def _is_eye(script: Script, mask: ast.expr, around: ast.AST) -> bool:
    """Whether a mask is ``torch.eye(n, m)``, as truths."""
    mask = _held(mask, around)
    while isinstance(mask, ast.Call) and isinstance(mask.func, ast.Attribute) and mask.func.attr in {"bool", "to"}:
        mask = mask.func.value
    return isinstance(mask, ast.Call) and script.resolve(mask.func) == "torch.eye" and len(mask.args) == PAIR


def _held(value: ast.expr, around: ast.AST) -> ast.expr:
    if not isinstance(value, ast.Name):
        return value
    given = [each for names, each, _ in assigned(around) if value.id in names]
    return given[0] if len(given) == 1 else value
