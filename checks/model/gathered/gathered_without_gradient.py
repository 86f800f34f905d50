"""Embeddings are gathered from all ranks for a contrastive loss, and lose their gradients on the way.

## What happens

`torch.distributed.all_gather` fills tensors of its own: what it gives has no gradient, also where it is this rank's own
embeddings. A loss that compares embeddings with the gathered ones (CLIP, SimCLR, SupCon) then moves each sample as the
one that is compared, and never as the one that it is compared with. One process with the whole batch would do both.
Nothing fails, and the loss goes down.

## How to be sure

Print `gathered.requires_grad`: it is False. ddpdoctor (`ddpdoctor run`) reports a product in the graph of the loss of
this rank's embeddings with all that was gathered, in steps in which what the ranks gave to all_gather had a gradient.
What a momentum encoder or `.detach()` has given is meant to have none.

## How to mend it

Gather by a function of one's own, whose backward adds up the gradients of all ranks and hands on this rank's part (the
fix has it). `torch.distributed.nn.functional.all_gather` does the same; torch 2.13 warns that it is deprecated.

Or put this rank's own back into its place, which carries the gradients that this rank can know:

    gathered[dist.get_rank()] = embeddings

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Not seen in compiled code. Source: PyTorch documentation,
torch.distributed.nn.functional; OpenCLIP, src/open_clip/loss.py, `gather_features` ("ensure grads for local rank").
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Exchange,
    Finding,
    Fix,
    Place,
    Product,
    Severity,
    StepFingerprinted,
    Training,
    watch,
)

from .._alike import earlier, of_one_model
from .._words import GATHER

AILMENT = Ailment("DDP1556", Severity.WARNING)
SURE = 2  # steps


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Look for a product with gathered embeddings that had a gradient, and have none, in each of the last steps."""
    ranks = of_one_model(event, training)
    if not ranks:
        return
    steps = [ranks, *earlier(event, training)]
    found = [_compared(each) for each in steps]
    if len(found) < SURE or not all(found[:SURE]) or any(found[SURE:]):
        return
    told, others = found[0], len(ranks) - 1
    if told is None:
        return
    product, sent = told
    yield Finding(
        f"the embeddings that {sent.operation} gives carry no gradient: no sample learns as one that others are "
        "compared with",
        (
            Evidence(f"{sent.operation} is given what has a gradient, and gives what has none",
                     "a gather whose backward adds up over the ranks", f"{sent.file}:{sent.line}"),
            Evidence(f"a product of {product.rows} x {product.columns}: this rank's embeddings, with those of this and "
                     f"{others} other rank{'s' if others > 1 else ''}", "both sides with gradients",
                     f"the graph of the loss, step {event.number}"),
        ),
        Fix(
            "gather with gradients",
            diff=f"{GATHER}-dist.all_gather(gathered, embeddings)\n-everybody = torch.cat(gathered)\n"
            "+everybody = Gather.apply(embeddings)",
        ),
        Place(file=sent.file or None, line=sent.line or None),
    )  # fmt: skip


def _compared(ranks: dict[int, StepFingerprinted]) -> tuple[Product, Exchange] | None:
    """Return what every rank multiplies with all that it has gathered, and the communication that gathered it."""
    told = [next(_pairs(each, len(ranks)), None) for each in ranks.values()]
    return told[0] if all(told) else None


def _pairs(step: StepFingerprinted, ranks: int) -> Iterator[tuple[Product, Exchange]]:
    gathered = [each for each in step.exchanges if "all_gather" in each.operation and each.when == "before backward"]
    for product in step.products:
        sides = sorted((product.rows, product.columns))
        if product.both or not product.computed or sides[0] * ranks != sides[1]:
            continue
        fitting = [each for each in gathered if each.elements == each.calls * sides[1] * product.inner]
        if fitting and all(each.learnt for each in fitting):  # else what is compared with can be what has no gradient
            yield product, fitting[0]
