"""The labels of a contrastive loss are those of rank 0 on every rank.

## What happens

A loss in the manner of CLIP compares this rank's embeddings with those gathered from all ranks: `logits = image @
all_text.T` has a row for each own sample, and a column for each sample of all ranks. The partner of own sample 0 stands
in column `rank * n`, and `torch.arange(n)` names column 0: every rank but the first learns to match its samples with
those of rank 0. Nothing fails, and the loss goes down more slowly; on one GPU the labels are right.

## How to be sure

Print `labels[0]` on rank 1: it is 0, where it should be the number of samples of the ranks before.

In a source (`ddpdoctor lint`): `cross_entropy` is given a product of what is not gathered with what is, and labels
that `torch.arange` makes without the rank; or the diagonal of such a product is taken or masked, as that of each sample
with itself: `scores.fill_diagonal_(-inf)`, `scores[rows, rows]`, `torch.eye(n, len(everybody))`. On rank 1, a sample
then finds itself as its nearest neighbour.

## How to mend it

    labels = dist.get_rank() * n + torch.arange(n, device=logits.device)
    scores[torch.arange(n), labels] = float("-inf")   # each sample with itself

Where the embeddings of both sides are gathered, the rows are those of all ranks, and `torch.arange` is right.

## Versions and sources

Holds for torch 2.2 and later, whatever the backend. Source: OpenCLIP, src/open_clip/loss.py, `get_ground_truth`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Severity, keyword, lint

from ._gathered_products import GATHERS, assigned, product_of
from ._own_columns import own_columns

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP544", Severity.ERROR)
LOSSES = ("torch.nn.functional.cross_entropy", "torch.nn.CrossEntropyLoss")


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a loss of rows of this rank, over columns of all, whose labels count from 0."""
    if "arange" not in script.text or not GATHERS.search(script.text):
        return
    told: set[ast.Call] = set()
    for call in script.nodes(ast.Call):
        if script.resolve(call.func) != LOSSES[0] and not script.made_by(call.func, LOSSES[1]):
            continue
        given = [*call.args, *(each for name in ("input", "target") if (each := keyword(call, name)) is not None)]
        around = script.function(call)
        if len(given) < 2 or around is None:  # noqa: PLR2004 - logits and labels
            continue
        labels = _counted(script, given[1], around)
        product = product_of(script, given[0], around) if labels is not None else None
        if labels is not None and product is not None and labels not in told:
            told.add(labels)
            right = f"dist.get_rank() * {script.code(labels.args[0])} + {script.code(labels)}"
            yield Finding(
                "the labels count from 0 on every rank, where the columns are those of all ranks: all but rank 0 learn "
                "to match the samples of rank 0",
                (script.seen(labels, right), script.seen(product), script.seen(call)),
                Fix("begin to count at the rank's own first column", edits=(script.replaced(labels, right),)),
                script.place(labels),
            )


@lint
def of_own_columns(script: Script) -> Iterator[Finding]:
    """Look for a diagonal of such a product, which is at the rank's own samples on rank 0 alone."""
    for each in own_columns(script) if GATHERS.search(script.text) else ():
        yield Finding(
            f"the diagonal of {script.code(each.of)} is that of rank 0's samples on every rank, where the columns are "
            "those of all ranks: on all but rank 0, each sample's own column is another one",
            (script.seen(each.node, each.right), script.seen(each.product)),
            Fix("begin at the rank's own first column", diff=each.diff),
            script.place(each.node),
        )


def _counted(script: Script, labels: ast.expr, around: ast.AST) -> ast.Call | None:
    """Return the ``torch.arange`` of one number that labels are, and nothing is added to."""
    if isinstance(labels, ast.Name):
        held = [(value, node) for names, value, node in assigned(around) if labels.id in names]
        if len(held) != 1 or not isinstance(held[0][1], ast.Assign):
            return None
        labels = held[0][0]
    while isinstance(labels, ast.Call) and isinstance(labels.func, ast.Attribute) and labels.func.attr in {
        "to", "cuda", "long", "type"
    }:  # fmt: skip
        labels = labels.func.value
    is_range = isinstance(labels, ast.Call) and script.resolve(labels.func) == "torch.arange" and len(labels.args) == 1
    return labels if isinstance(labels, ast.Call) and is_range and "rank" not in script.code(labels) else None
