"""A number that the loss is computed with has become another one on each rank.

## What happens

A coefficient that a training adapts to what it sees (the weight of a loss term, the factor before a penalty, the
temperature of a teacher, the rate of a dropout) is a plain number of each process. DDP keeps parameters equal, not
numbers. Where each rank adapts its own by the loss, the divergence or the accuracy of its own share, each rank
minimises another loss from then on: the gradients are averaged, the weights stay equal, and nothing fails.

## How to be sure

ddpdoctor reads, in a few compared steps, the numbers in the graph of the loss, and looks where the functions that train
held them before the batch came. Reported is a number that was equal on all ranks, is not any more, and is held at the
same place on each of them. Print it on every rank.

## How to mend it

Adapt it by what all ranks have seen:

    kl = torch.tensor(kl_of_this_rank, device=device)
    dist.all_reduce(kl)
    kl /= dist.get_world_size()

Silent where it differs from the start, as weights of unequal batches do, and where it is computed from the batch, as a
number of tokens is. Not seen in compiled code, nor where the ranks' losses are built in different ways.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. In a running training factors of products are seen with torch
2.10 and later, rates of dropout with all. Source: PyTorch documentation, "Distributed Data Parallel", internal design:
what is kept equal is parameters and buffers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Factor,
    Finding,
    Fix,
    Place,
    Severity,
    StepFingerprinted,
    Training,
    watch,
)

from .._alike import earlier, without_parallelism
from ..local._held import Attribute

AILMENT = Ailment("DDP1523", Severity.WARNING)
DROPOUT = "dropout"
WORDS = {"Mul": "multiplied by", "Div": "divided by", "NativeDropout": "computed with", DROPOUT: "computed with"}

Key = tuple[str, int, int, str]
"""Operation, place and shape of the graph; the path of a rate of dropout."""


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Look for a number in the loss that was equal on all ranks and has gone apart."""
    ranks = without_parallelism(event, training)
    if not ranks:
        return
    now = _factors(ranks)
    apart = {key: held for key, row in now.items() if (held := _held_apart(row))}
    if not apart:
        return
    past = [_factors(each) for each in earlier(event, training)]
    for key, path in apart.items():
        rows = [each[key] for each in past if key in each]
        if any(_held_apart(row) == path for row in rows):
            return  # said before
        if any(len({each.value for each in row}) == 1 for row in rows):
            yield _finding(now[key], path, event)
            return


def _factors(ranks: dict[int, StepFingerprinted]) -> dict[Key, list[Factor]]:
    """Return the numbers that all ranks have at one place of one graph, which each rank has once in a step."""
    told = [_by_key(each) for each in ranks.values()]
    return {key: [each[key] for each in told] for key in told[0] if all(key in each for each in told)}


def _by_key(step: StepFingerprinted) -> dict[Key, Factor]:
    keys = [(each.operation, each.place, each.shape, each.paths[0] if each.operation == DROPOUT else "")
            for each in step.factors]  # fmt: skip
    counts = Counter(keys)
    return {key: each for key, each in zip(keys, step.factors, strict=True) if counts[key] == 1}


def _held_apart(row: list[Factor]) -> str:
    """Return where all ranks hold the number, if it is not the same; empty where it is, or where they count."""
    values = {each.value for each in row}
    if len(values) == 1 or all(value.is_integer() for value in values):
        return ""
    common = set(row[0].paths).intersection(*(each.paths for each in row[1:]))
    return next((path for path in row[0].paths if path in common), "")


def _finding(row: list[Factor], path: str, event: StepFingerprinted) -> Finding:
    told = ", ".join(f"{each.value:.6g} on rank {rank}" for rank, each in enumerate(row[:8]))
    name = path.rpartition(".")[2]
    steps = (event.site.file, event.site.line) if event.site else ("", 0)
    file, line = Attribute(path, "", steps[:1]).assigned() or steps
    return Finding(
        f"{path}, which the loss is {WORDS[row[0].operation]}, is not the same on all ranks any more",
        (
            Evidence(f"{path}: {told}", "the same on all ranks, as it was before", f"before step {event.number}"),
            Evidence("the ranks' gradients are averaged, of losses that differ", "one loss", "all ranks"),
        ),
        Fix(
            f"compute {path} from what all ranks have seen",
            diff=f"+seen = torch.tensor(seen_by_this_rank, device=device)\n+dist.all_reduce(seen)\n"
            f"+seen /= dist.get_world_size()  # then adapt {name} by it",
        ),
        Place(file=file or None, line=line or None),
    )
