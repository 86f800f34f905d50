"""The labels of a contrastive loss are those of rank 0 on every rank.

## What happens

A loss in the manner of CLIP compares this rank's embeddings with those gathered from all ranks: `logits = image @
all_text.T` has a row for each own sample, and a column for each sample of all ranks. The partner of own sample 0 stands
in column `rank * n`, and `torch.arange(n)` names column 0: every rank but the first learns to match its samples with
those of rank 0. Nothing fails, and the loss goes down more slowly; on one GPU the labels are right.

## How to be sure

Print `labels[0]` on rank 1: it is 0, where it should be the number of samples of the ranks before.

In a source (`ddpdoctor lint`): `cross_entropy` is given a product of what is not gathered with what is, and labels
that `torch.arange` makes without the rank.

## How to mend it

    labels = dist.get_rank() * n + torch.arange(n, device=logits.device)

Where the embeddings of both sides are gathered, the rows are those of all ranks, and `torch.arange` is right.

## Versions and sources

Holds for torch 2.2 and later, whatever the backend. Source: OpenCLIP, src/open_clip/loss.py, `get_ground_truth`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Severity, keyword, lint

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP544", Severity.ERROR)
LOSSES = ("torch.nn.functional.cross_entropy", "torch.nn.CrossEntropyLoss")
GATHERS = re.compile(r"gather", re.IGNORECASE)
LISTED = ("torch.distributed.all_gather", "torch.distributed.all_gather_into_tensor")
PICKED = (ast.List, ast.ListComp, ast.GeneratorExp, ast.Subscript)
"""What can put the gathered into another order."""
SIZES = re.compile(r"\.(?:shape|size\(|numel\(|device|dtype)|\blen\(")


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a loss of rows of this rank, over columns of all, whose labels count from 0."""
    if "arange" not in script.text or not GATHERS.search(script.text):
        return
    for call in script.nodes(ast.Call):
        if script.resolve(call.func) != LOSSES[0] and not script.made_by(call.func, LOSSES[1]):
            continue
        given = [*call.args, *(each for name in ("input", "target") if (each := keyword(call, name)) is not None)]
        around = script.function(call)
        if len(given) < 2 or around is None:  # noqa: PLR2004 - logits and labels
            continue
        labels = _counted(script, given[1], around)
        product = _product(script, given[0], around) if labels is not None else None
        if labels is not None and product is not None:
            right = f"dist.get_rank() * {script.code(labels.args[0])} + {script.code(labels)}"
            yield Finding(
                "the labels count from 0 on every rank, where the columns are those of all ranks: all but rank 0 learn "
                "to match the samples of rank 0",
                (script.seen(labels, right), script.seen(product), script.seen(call)),
                Fix("begin to count at the rank's own first column", edits=(script.replaced(labels, right),)),
                script.place(labels),
            )


def _assigned(around: ast.AST) -> list[tuple[set[str], ast.expr, ast.stmt]]:
    """Return what a function gives its variables, in order."""
    found: list[tuple[set[str], ast.expr, ast.stmt]] = []
    for node in ast.walk(around):
        match node:
            case ast.Assign(targets=targets, value=value):
                names = {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
                found.append((names, value, node))
            case (
                ast.AugAssign(target=ast.Name(id=name), value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                found.append(({name}, value, node))
    return sorted(found, key=lambda each: each[2].lineno)


def _counted(script: Script, labels: ast.expr, around: ast.AST) -> ast.Call | None:
    """Return the ``torch.arange`` of one number that labels are, and nothing is added to."""
    if isinstance(labels, ast.Name):
        held = [(value, node) for names, value, node in _assigned(around) if labels.id in names]
        if len(held) != 1 or not isinstance(held[0][1], ast.Assign):
            return None
        labels = held[0][0]
    while isinstance(labels, ast.Call) and isinstance(labels.func, ast.Attribute) and labels.func.attr in {
        "to", "cuda", "long", "type"
    }:  # fmt: skip
        labels = labels.func.value
    is_range = isinstance(labels, ast.Call) and script.resolve(labels.func) == "torch.arange" and len(labels.args) == 1
    return labels if isinstance(labels, ast.Call) and is_range and "rank" not in script.code(labels) else None


def _product(script: Script, logits: ast.expr, around: ast.AST) -> ast.expr | None:
    """Return the product that logits are, up to a factor: of what is not gathered with what is."""
    gathered, products = _flow(script, around)
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


def _flow(script: Script, around: ast.AST) -> tuple[set[str], dict[str, ast.expr]]:
    """Return the variables that hold what all ranks have given, and those that hold one product of matrices."""
    lists = _listed(script, around)
    gathered: set[str] = set()
    products: dict[str, ast.expr] = {}
    for names, value, _ in _assigned(around):
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
        (isinstance(each, ast.Name) and each.id in gathered)
        or (isinstance(each, ast.Call) and GATHERS.search(ast.unparse(each.func)) is not None)
        for each in ast.walk(node)
    )
