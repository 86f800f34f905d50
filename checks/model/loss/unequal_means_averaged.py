"""Each rank divides its loss by its own number of tokens, and these numbers differ much.

## What happens

A loss that is the mean over the labels of a batch (`ignore_index`, a mask, `reduction="mean"`) is divided by how many
labels this rank, or this micro-batch, has. DDP averages the ranks' gradients as they are. Where one rank has 20 answer
tokens and another 400, each of the 20 counts 20 times as much: the result depends on how the samples fall to ranks and
micro-batches, and is not that of one process with the whole batch.

## How to be sure

Print the number of labels of each rank in a few steps. ddpdoctor (`ddpdoctor run`) reads it in compared steps from the
graph of the loss: what a `mean`, a cross entropy or a quotient has divided by. Reported where in at least half of these
steps one rank, or micro-batch, has twice as many as another. Losses whose gradients different lines ask for, as those
of a generator and a discriminator, are compared each with itself; where all ranks have the same numbers, none is told.

## How to mend it

Add up, and divide by the labels of all ranks; times the number of ranks, by which DDP divides:

    count = (labels != -100).sum()  # of all micro-batches of the step
    dist.all_reduce(count)
    loss = F.cross_entropy(logits, labels, reduction="sum") * dist.get_world_size() / count

In transformers: `TrainingArguments(average_tokens_across_devices=True)`. It is a note: means of each rank are a usual
choice where they are meant, as one sequence, one vote.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.10 and later, of which saved tensors tell whether a hook has packed
them. Not seen in compiled code. Source: PyTorch documentation, DistributedDataParallel (gradients are averaged);
transformers, "Fixing gradient accumulation", and TrainingArguments.average_tokens_across_devices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from ddpdoctor.check import (
    ACCELERATE,
    FABRIC,
    Ailment,
    Evidence,
    Finding,
    Fix,
    LossTerm,
    Place,
    Severity,
    StepFingerprinted,
    Training,
    watch,
)

from .._alike import earlier, without_parallelism
from ._loss_lines import loss_line

AILMENT = Ailment("DDP1508", Severity.NOTE)
FEWEST = 4  # steps
UNEQUAL = 2.0  # times as many
SAME = 1e-5  # relative
ROWS = 4  # terms of a loss

Counts = tuple[tuple[float, ...], ...]
"""Of one term of the loss, by rank: what each micro-batch was divided by."""


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Look for a term of the loss that ranks divide by counts of their own, which differ much in most steps."""
    ranks = without_parallelism(event, training)
    if not ranks:
        return
    steps = [_unequal(each) for each in (ranks, *earlier(event, training))]
    counts = steps[0]
    if counts is not None and _are_weights([each for each in steps if each is not None]):
        return
    if counts is None or not _are_many(steps) or any(_are_many(steps[at:]) for at in range(1, len(steps))):
        return  # not, or said before
    usual = median(_ratio(each) for each in steps if each is not None)
    file, line = loss_line(*event.backward) or event.backward
    yield Finding(
        "the ranks' losses are means over numbers of elements of their own, and DDP averages them as if they were "
        f"equal: one counts {usual:.3g} times as much as another in the middle one of {len(steps)} steps",
        tuple(
            Evidence(f"divided by {', '.join(f'{each:.6g}' for each in row[:8])}", "by the sum of all ranks",
                     f"rank {rank}, step {event.number}")
            for rank, row in [*enumerate(counts)][:8]
        ),
        _mend(training),
        Place(file=file or None, line=line or None),
    )  # fmt: skip


def _are_weights(steps: list[Counts]) -> bool:
    """Whether several losses of a step have the same counts on all ranks, in all steps: they are weights of them."""
    return len(steps[0][0]) > 1 and len({row for each in steps for row in each}) == 1


def _are_many(steps: list[Counts | None]) -> bool:
    """Whether the latest of these steps is unequal, and at least half of them are."""
    enough = len(steps) >= FEWEST and steps[0] is not None
    return enough and 2 * sum(each is not None for each in steps) >= len(steps)


def _unequal(ranks: dict[int, StepFingerprinted]) -> Counts | None:
    """Return the counts of the term whose counts differ most; None where they are alike, or cannot be compared."""
    losses = [each.terms for each in ranks.values()]
    shapes = {len(loss) for of_rank in losses for loss in of_rank}
    if len({len(each) for each in losses}) != 1 or len(shapes) != 1 or not losses[0]:
        return None
    if any(_is_of_rows(loss) for of_rank in losses for loss in of_rank):
        return None
    found = []
    for at in range(shapes.pop()):
        terms = [[loss[at] for loss in of_rank] for of_rank in losses]
        found += [_counts(terms, line) for line in sorted({each.line for of_rank in terms for each in of_rank})]
    largest = max(filter(None, found), key=_ratio, default=None)
    return largest if largest is not None and _ratio(largest) >= UNEQUAL else None


def _counts(terms: list[list[LossTerm]], line: int) -> Counts | None:
    """Return what the losses of one line were divided by; None where they cannot be compared, or all ranks are alike.

    Where all ranks have the same in the same order, nothing tells other sizes from other losses.
    """
    ours = [[each for each in of_rank if each.line == line] for of_rank in terms]
    rests = [each.rest for of_rank in ours for each in of_rank]
    if min(rests) <= 0 or max(rests) - min(rests) > SAME * max(rests) or len({len(each) for each in ours}) != 1:
        return None
    counts = tuple(tuple(each.divided for each in of_rank) for of_rank in ours)
    return counts if len(set(counts)) > 1 else None


def _is_of_rows(loss: Sequence[LossTerm]) -> bool:
    """Whether a loss has many terms and few counts: rows that are added up one by one, each with a weight."""
    counts = {each.divided for each in loss}
    return len(loss) >= ROWS and 1 < len(counts) <= len(loss) / 2


def _ratio(counts: Counts) -> float:
    numbers = [each for row in counts for each in row]
    return max(numbers) / min(numbers) if min(numbers) > 0 else 1.0


def _mend(training: Training) -> Fix:
    """Return the division by the count of all ranks, in the words of the framework that trains."""
    framework = training.framework
    added, ranks = {
        ACCELERATE.name: (
            "+count = accelerator.reduce(mask.sum())   # the sum of all ranks",
            "accelerator.num_processes",
        ),
        FABRIC.name: ('+count = fabric.all_reduce(mask.sum(), reduce_op="sum")', "fabric.world_size"),
    }.get(
        framework.name if framework is not None else "",
        ("+count = mask.sum()\n+torch.distributed.all_reduce(count)", "torch.distributed.get_world_size()"),
    )
    return Fix(
        "add up, and divide by the number of all ranks; DDP divides by the number of ranks",
        diff=f"-loss = (losses * mask).sum() / mask.sum()\n{added}\n+loss = (losses * mask).sum() * {ranks} / count",
    )
