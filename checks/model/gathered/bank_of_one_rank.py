"""A bank of samples that embeddings are compared with has the samples of one rank alone.

## What happens

A memory bank (MoCo's queue, a cross-batch memory, features of all samples) keeps what the encoder made of earlier
batches, as negatives or neighbours of those to come. Each rank puts in what it has computed of its own share. Where the
bank is an attribute, each rank has another one, of its share alone: it turns over N times slower than it would with one
process, and never meets the samples of the others. Where it is a buffer of a model that DDP wraps, rank 0's is given to
all at each forward, and what the other ranks put in is lost. Nothing fails, for the weights stay equal.

## How to be sure

ddpdoctor reads the graph of the loss in compared steps: embeddings are multiplied with a matrix that has no gradient
and the shape of a tensor that an object of the script holds, or a variable named like a bank (`queue`), and that
tensor is another one on each rank before each of those steps; or the source keeps batches in a list or a deque, and
puts them together for that product. Print a checksum of the bank on every rank.

`ddpdoctor check --model train.py:build --batch train.py:batch` compares matrices among the buffers after a step under
DDP: told is one that the source fills in parts and computes with, in a class that communicates nothing.

## How to mend it

Put in what all ranks have computed, in the same order everywhere:

    keys = [torch.empty_like(key) for _ in range(dist.get_world_size())]
    dist.all_gather(keys, key.detach().contiguous())
    bank.push(torch.cat(keys))

Silent where anything is gathered in the step, where the product goes through a softmax as attention does, and where the
bank is filled only once.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Not seen in compiled code. Source: MoCo (facebookresearch/moco,
moco/builder.py): `concat_all_gather` before `_dequeue_and_enqueue`; PyTorch documentation, "Distributed Data Parallel":
buffers are broadcast from rank 0.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    Place,
    Product,
    Severity,
    Statistic,
    StepFingerprinted,
    Training,
    probe,
    watch,
)

from ..._ledgers.sheets import differ
from .._alike import earlier, without_parallelism
from ..local._held import Attribute
from ._lists import compared_list, filled_at
from ._products import ATTENTION, gathers

if TYPE_CHECKING:
    from ddpdoctor.check import ModelExam

AILMENT = Ailment("DDP1552", Severity.WARNING)
SURE = 2  # steps in which it is another one
PLANE = 2

Rows = dict[str, list[Statistic]]


@probe
def in_a_step(model: ModelExam) -> Iterator[Finding]:
    """Look for a buffer that a forward puts something in, another thing on each rank, and that samples meet."""
    model.steps.under_ddp()
    if dict(model.source.options).get("broadcast_buffers") is False:
        return  # each rank keeps its own
    for path, row in model.buffers_apart.items():
        held = row[0]
        attribute = Attribute(f"model.{path}", held.kind, (held.file,))
        filled = attribute.filled()
        if len(held.shape) == PLANE and filled and attribute.meets_samples() and not attribute.is_exchanged():
            told = ", ".join(f"{each.sums[0]:.6g} on rank {rank}" for rank, each in enumerate(row[:8]))
            yield Finding(
                f"{path}, a buffer of {' x '.join(map(str, held.shape))} that samples are compared with, is filled by "
                "each rank with what it has computed itself: rank 0's replaces it at each forward, with all that other "
                "ranks have put in",
                (Evidence(f"the sum of {path}: {told}", "the same on all ranks", "after a step under DDP"),),
                _gathered(filled),
                Place(file=filled[0], line=filled[1]),
            )


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Look for a tensor that embeddings are compared with, and that has gone apart."""
    ranks = without_parallelism(event, training)
    if not ranks:
        return
    steps = [ranks, *earlier(event, training)]
    if len(steps) < SURE or gathers(steps[:SURE]):
        return
    yield from _in_a_list(steps, event)
    banks = [_banks(each) for each in steps]
    common = set.intersection(*map(set, banks[:SURE]))
    if not common or any(common <= set(each) for each in banks[SURE:]):
        return  # none, or said before
    path = min(common)
    rows = [each[path] for each in banks[:SURE]]
    if len({row[0].print for row in rows}) == 1:
        return  # nothing is put in
    attribute = Attribute(path, rows[0][0].kind, (rows[0][0].file, event.site.file if event.site else ""))
    if not attribute.is_exchanged() and attribute.written()[0] is None:  # a mean that is kept is a statistic
        yield _finding(rows[0], attribute, event)


def _in_a_list(steps: list[dict[int, StepFingerprinted]], event: StepFingerprinted) -> Iterator[Finding]:
    """Look for a product with several batches of samples without gradients, which the source keeps in a list."""
    met = [all(any(_are_batches(each, step.rows) for each in step.products) for step in ranks.values())
           for ranks in steps]  # fmt: skip
    if not all(met[:SURE]) or any(met[SURE:]) or event.site is None:
        return
    kept = compared_list(event.site.file)
    if kept is None:
        return
    product = next(each for each in event.products if _are_batches(each, event.rows))
    name, line = kept
    yield Finding(
        f"{name} keeps the samples of this rank alone, and embeddings are compared with them: each rank has a bank of "
        "its own",
        (
            Evidence(f"a product of {product.rows} x {product.columns}: {event.rows} samples of this rank, with "
                     f"{product.columns} that were kept", "those of all ranks", f"step {event.number}"),
            Evidence("nothing is gathered in the step", "all_gather of what is put in", f"{event.site.file}:{line}"),
        ),
        Fix(
            "gather what all ranks have computed before it is put in",
            diff="+keys = [torch.empty_like(key) for _ in range(dist.get_world_size())]\n"
            f"+dist.all_gather(keys, key.detach().contiguous())\n-{name}.append(key)\n+{name}.append(torch.cat(keys))",
        ),
        Place(file=event.site.file, line=line),
    )  # fmt: skip


def _are_batches(product: Product, rows: int) -> bool:
    """Whether a batch is compared with one or more batches of what has no gradient."""
    whole = rows > 1 and product.rows % rows == 0 and product.columns % rows == 0
    return whole and product.computed and not product.both and not set(product.way) & ATTENTION


def _banks(ranks: dict[int, StepFingerprinted]) -> Rows:
    """Return what differs between the ranks, and is compared with embeddings on all of them."""
    told = [
        {each.path: each for each in step.statistics if _is_compared(each, step.products)} for step in ranks.values()
    ]
    rows = {path: [each[path] for each in told] for path in told[0] if all(path in each for each in told)}
    return {path: row for path, row in rows.items() if differ([each.print for each in row])}


def _is_compared(held: Statistic, products: tuple[Product, ...]) -> bool:
    """Whether a tensor is what embeddings are multiplied with: as it is, turned, or the part that is filled."""
    if len(held.shape) != PLANE or (not held.kind and filled_at(held) is None):
        return False
    for each in products:
        sizes = {(each.columns, each.inner), (each.rows, each.inner)}
        whole = held.shape in sizes or held.shape[::-1] in sizes
        part = each.columns < held.shape[0] and each.inner == held.shape[1]
        if each.computed and not each.both and not set(each.way) & ATTENTION and (whole or part):
            return True
    return False


def _finding(row: list[Statistic], attribute: Attribute, event: StepFingerprinted) -> Finding:
    steps = (event.site.file, event.site.line) if event.site else ("", 0)
    file, line = attribute.filled() or filled_at(row[0]) or attribute.assigned() or steps
    told = ", ".join(f"{_shown(each)} on rank {rank}" for rank, each in enumerate(row[:8]))
    held = row[0]
    how = (
        "rank 0's replaces it at each forward, with all that other ranks have put in"
        if held.broadcast
        else "each rank puts in what it has computed itself"
    )
    return Finding(
        f"{held.path}, a bank of {' x '.join(map(str, held.shape))} that embeddings are compared with, is not the same "
        f"on all ranks: {how}",
        (
            Evidence(f"a checksum of {held.path}: {told}", "the same on all ranks", f"before step {event.number}"),
            Evidence("nothing is gathered in the step", "all_gather of what is put in", "the graph of the loss"),
        ),
        _gathered((file, line)),
        Place(file=file or None, line=line or None),
    )


def _gathered(filled: tuple[str, int]) -> Fix:
    """Return how what all ranks have computed is put in, by its name where the line that puts it in has one."""
    line = linecache.getline(*filled) if filled[0] else ""
    found = re.search(r"\]\s*=\s*(\w+)(\.T|\.t\(\))?\s*(#.*)?$", line.rstrip())
    name = found[1] if found else "key"
    return Fix(
        "gather what all ranks have computed before it is put in, and before its length is taken",
        diff=f"+parts = [torch.empty_like({name}) for _ in range(dist.get_world_size())]\n"
        f"+dist.all_gather(parts, {name}.detach().contiguous())\n+{name} = torch.cat(parts)",
    )


def _shown(held: Statistic) -> str:
    return f"{held.print[0]:.6g}" if held.print else "none"
