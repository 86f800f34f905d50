"""Products of a rank's own rows with what all ranks have given, as a function says them."""

from __future__ import annotations

import ast
import re
import sys
from typing import TYPE_CHECKING

from ddpdoctor.check import last_name

if TYPE_CHECKING:
    from ddpdoctor.check import Script

LAST = sys.maxsize
GATHERS = re.compile(r"gather", re.IGNORECASE)
LISTED = ("torch.distributed.all_gather", "torch.distributed.all_gather_into_tensor")
PICKED = (ast.List, ast.ListComp, ast.GeneratorExp, ast.Subscript)
"""What can put the gathered into another order."""
SIZES = re.compile(r"\.(?:shape|size\(|numel\(|device|dtype)|\blen\(")


def gathers(call: ast.Call) -> bool:
    """Whether a call's name says that it gathers from all ranks: torch.gather takes an index beside the tensor."""
    name = ast.unparse(call.func)
    picks = name.rpartition(".")[2] == "gather" and len(call.args) + len(call.keywords) > 1
    return GATHERS.search(name) is not None and not picks


def assigned(around: ast.AST) -> list[tuple[set[str], ast.expr, ast.stmt]]:
    """Return what a function gives its variables, in order."""
    found: list[tuple[set[str], ast.expr, ast.stmt]] = []
    for node in ast.walk(around):
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=takers)], value=ast.Tuple(elts=parts)) if len(takers) == len(parts):
                found += [({ast.unparse(taker)}, part, node) for taker, part in zip(takers, parts, strict=True)]
            case ast.Assign(targets=targets, value=value):
                names = {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
                found.append((names, value, node))
            case (
                ast.AugAssign(target=ast.Name(id=name), value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                found.append(({name}, value, node))
    return sorted(found, key=lambda each: each[2].lineno)


def product_of(script: Script, logits: ast.expr, around: ast.AST, before: int = LAST) -> ast.expr | None:
    """Return the product that logits are before a line, up to a factor: of what is not gathered with what is.

    Of several that are side by side, the first.
    """
    logits = _first_columns(script, logits)
    gathered, products = _flow(script, around, before)
    names = [each.id for each in ast.walk(logits) if isinstance(each, ast.Name)]
    inner = _products(script, logits)
    found = inner or [products[name] for name in names if name in products]
    if len(found) != 1 or any(isinstance(each, ast.Subscript) for each in ast.walk(logits)):
        return None
    operands = _operands(script, found[0])
    if operands is None:
        return None
    left, right = (_is_gathered(each, gathered) for each in operands)
    return found[0] if right and not left else None


def _first_columns(script: Script, logits: ast.expr) -> ast.expr:
    """Return what has the first columns of logits: ``ab`` of ``torch.cat([ab, aa], dim=1)``."""
    if isinstance(logits, ast.Call) and script.resolve(logits.func) in {"torch.cat", "torch.concat", "torch.hstack"}:
        told = [each.value for each in logits.keywords if each.arg == "dim"] or logits.args[1:2]
        sideways = any(ast.unparse(each) in {"1", "-1"} for each in told) or last_name(logits.func) == "hstack"
        if sideways and logits.args and isinstance(logits.args[0], (ast.List, ast.Tuple)) and logits.args[0].elts:
            return logits.args[0].elts[0]
    return logits


def _flow(script: Script, around: ast.AST, before: int) -> tuple[set[str], dict[str, ast.expr]]:
    """Return the variables that hold what all ranks have given, and those that hold one product of matrices."""
    lists = _listed(script, around)
    gathered: set[str] = set()
    products: dict[str, ast.expr] = {}
    for names, value, node in assigned(around):
        if node.lineno >= before:
            break
        inner = _products(script, value)
        for name in names:
            products.pop(name, None)
            gathered.discard(name)
        if len(inner) == 1:
            products |= dict.fromkeys(names, inner[0])
        elif _is_gathered(value, gathered | lists):
            gathered |= names
    return gathered | lists, products


def _listed(script: Script, around: ast.AST) -> set[str]:
    """Return the lists and tensors that collectives fill."""
    calls = [each for each in script.calls(*LISTED) if script.function(each) is around and each.args]
    return {each.args[0].id for each in calls if isinstance(each.args[0], ast.Name)}


def _products(script: Script, node: ast.expr) -> list[ast.expr]:
    return [each for each in ast.walk(node) if isinstance(each, ast.expr) and _operands(script, each) is not None]


def _operands(script: Script, node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    match node:
        case ast.BinOp(left=left, op=ast.MatMult(), right=right):
            return left, right
        case ast.Call(args=[left, right]) if script.resolve(node.func) in {"torch.matmul", "torch.mm"}:
            return left, right
        case ast.Call(func=ast.Attribute(value=left, attr="mm" | "matmul"), args=[right]):
            return left, right
    return None


def _is_gathered(node: ast.expr, gathered: set[str]) -> bool:
    """Whether an expression holds what all ranks have given, in their order, and no mere size of it."""
    if SIZES.search(ast.unparse(node)) or any(isinstance(each, PICKED) for each in ast.walk(node)):
        return False
    return any(
        (isinstance(each, ast.Name) and each.id in gathered) or (isinstance(each, ast.Call) and gathers(each))
        for each in ast.walk(node)
    )
