"""A contrastive loss compares each rank's samples among themselves alone.

## What happens

A contrastive loss (SimCLR, CLIP, SupCon, in-batch negatives of retrieval) compares each sample with all others of the
batch, and so does a triplet loss that picks the hardest ones. Under DDP the batch is a rank's own: with N ranks each
sample meets an N-th of the negatives that one process would show it with the whole batch. The gradients are averaged,
nothing fails, and the result depends on the number of GPUs: the task becomes easier with each GPU that shares the batch
out.

## How to be sure

ddpdoctor reads the graph of the loss in compared steps: a square product of vectors that layers have computed, as large
as the rank's batch (or as several views of it). Their norms are divided out, and it goes through a log-softmax or the
like into the loss; or its largest numbers are picked, and go through a margin. Nothing is gathered from other ranks in
that step. Print the shape of the matrix of similarities on each rank.

## How to mend it

Gather the embeddings of all ranks, with gradients, before they are compared:

    everybody = Gather.apply(embeddings)  # the function that the fix has

It is a note: a batch on each rank that is large enough by itself is a choice, too.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Not seen in compiled code. Source: OpenCLIP, src/open_clip/
loss.py (`gather_features`, `--local-loss`); Chen et al., "A Simple Framework for Contrastive Learning", 2020.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    Place,
    Severity,
    StepFingerprinted,
    Training,
    last_name,
    tree_of,
    watch,
)

from .._alike import earlier, without_parallelism
from .._words import GATHER
from ._products import gathers, squares

AILMENT = Ailment("DDP1551", Severity.NOTE)
SURE = 2  # steps
PRODUCTS = {"mm", "addmm", "addmm_", "matmul", "einsum", "linear", "cosine_similarity"}


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Look for a square of similarities of a rank's own samples, in each of the last steps."""
    ranks = without_parallelism(event, training)
    if len(ranks) < 2:  # noqa: PLR2004 - two ranks share
        return
    steps = [ranks, *earlier(event, training)]
    found = [squares(each) for each in steps]
    if len(found) < SURE or not all(found[:SURE]) or any(found[SURE:]) or gathers(steps[:SURE]):
        return
    square, rows = found[0][0], sum(each.rows for each in ranks.values())
    file, line = _compared(event) or ((event.site.file, event.site.line) if event.site else ("", 0))
    yield Finding(
        f"a contrastive loss compares the {event.rows} samples of each rank among themselves: those of the other ranks "
        "are no negatives",
        (
            Evidence(f"a product of {square.rows} x {square.columns} similarities on each of {len(ranks)} ranks",
                     f"{square.rows // event.rows * rows} columns, of {rows} samples in all",
                     f"the graph of the loss, step {event.number}"),
            Evidence("nothing is gathered in the step", "all_gather of the embeddings", "all ranks"),
        ),
        Fix(
            "gather the embeddings of all ranks, with their gradients, before they are compared",
            diff=GATHER + "+everybody = Gather.apply(embeddings)  # and the labels, by torch.distributed.all_gather\n"
            "-similarities = embeddings @ embeddings.T\n+similarities = embeddings @ everybody.T",
        ),
        Place(file=file or None, line=line or None),
    )  # fmt: skip


def _compared(event: StepFingerprinted) -> tuple[str, int] | None:
    """Return the one line that multiplies matrices, in the files that are known to compute the loss."""
    files = [*(each.file for each in event.numbers), *([event.site.file] if event.site else [])]
    found = [(file, line) for file in dict.fromkeys(files) for line in _products(tree_of(file).module)]
    return found[0] if len(set(found)) == 1 else None


def _products(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        match node:
            case ast.BinOp(op=ast.MatMult()):
                pass
            case ast.Call(func=called) if last_name(called) == "cdist":
                yield node.lineno
                continue
            case ast.Call(func=called) if last_name(called) in PRODUCTS:
                pass
            case _:
                continue
        text = ast.unparse(node)
        if any(turned in text for turned in (".T", ".t()", ".mT", "transpose", "einsum", "permute")):
            yield node.lineno
