"""A Python loop takes a large part of each step: through parameters, samples, numbers, or parts of a tensor.

## What happens

Each pass of a Python loop calls torch for one small tensor, and each call costs some microseconds, whatever the tensor
holds. An average of the weights that is updated parameter by parameter, a penalty that is added up over
`model.parameters()`, a `forward` that runs each sample of the batch by itself, a metric that compares predictions one
by one, a mask that is filled row by row: thousands of such calls a step. On a GPU they are thousands of kernels, each
too small for it.

## How to be sure

`ddpdoctor run --profile 50 -- COMMAND` looks every few milliseconds where the thread that trains is. ddpdoctor finds a
loop of your own lines that takes a tenth of the time or more, and 2 ms of a step, in every tenth step or more often,
and several of a kind that do so together, each with 3 % or more, but for those that pack what their function sends. The
source says what they go through: parameters, buffers or a state_dict; numbers that were taken out of tensors
(`.numpy()`, `.tolist()`); the first dimension of what a `forward` is given, of 8 samples or more, where no pass needs
the one before; the rows of a batch, each with a loss of its own; or parts of what the loop does nothing but fill, by a
counter, without reading it. Where the rank waits for a core, that wait is left out, and a loop that communicates counts
as on the rank that it takes least. A loop that reads a tensor in each pass is blocking-calls-in-step.

## How to mend it

One call for all: `torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))` for an average
of the weights, the optimizer's `weight_decay` for an L2 penalty, `torch._foreach_norm` and the like for lists of
tensors, the whole batch at once for layers (they take any leading dimension; samples of different lengths are padded,
`torch.nn.utils.rnn.pad_sequence`), `torch.arange(n) < lengths[:, None]` for a mask, `(predictions == labels).sum()` and
`torch.bincount` for metrics. Or less often: a slow average is as good with every tenth step.

## Versions and sources

Holds for torch 2.2 to 2.13. Sources: PyTorch Tutorials, "Performance Tuning Guide"; PyTorch documentation,
`torch.optim.swa_utils`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    EpochStarted,
    Finding,
    Fix,
    Severity,
    StepFingerprinted,
    StepsTimed,
    Training,
    watch,
)

from .._lines import seen
from ..source._at_line import FILLED, NUMBERS, PARAMETERS, ROWS, SAMPLES, function_text, loop_text
from ._rows import SHOWN, most, rows_of, taken

if TYPE_CHECKING:
    from ._own_code import Group
    from ._rows import Row

AILMENT = Ailment("DDP913", Severity.NOTE)
SMALL = 0.03  # of the time: a loop that takes less is not told with others either
MANY = 8  # samples of a batch
SAID = {
    PARAMETERS: "goes through parameters one by one",
    NUMBERS: "goes through numbers one by one",
    SAMPLES: "gives layers the samples of a batch one by one",
    FILLED: "fills a tensor piece by piece",
    ROWS: "computes the loss of each row by itself",
}
ALL_SAID = {
    PARAMETERS: "go through parameters one by one",
    NUMBERS: "go through numbers one by one",
    SAMPLES: "give layers the samples of a batch one by one",
    FILLED: "fill tensors piece by piece",
    ROWS: "compute the loss of each row by itself",
}
COMMUNICATES = re.compile(r"\b(?:all_reduce|reduce|broadcast|all_gather|gather|barrier)\w*\(")
AVERAGE = re.compile(r"ema|avg|average|shadow|teacher|target|momentum|lerp_|decay", re.IGNORECASE)
PENALTY = re.compile(r"\b(loss|penalty|reg|l1|l2)\w* ?\+?=", re.IGNORECASE)


@watch(StepsTimed)
def while_training(event: StepsTimed, training: Training) -> Iterator[Finding]:
    """Look for loops of the user's own lines that take much of the time, on any rank."""
    kinds = SAID.keys() - (set() if _rows(training) >= MANY else {SAMPLES})
    groups = rows_of(event, training, kinds)
    short: dict[str, dict[Group, list[Row]]] = {}
    for (kind, file, number), rows in groups.items():
        text = loop_text(file, number)
        waits = COMMUNICATES.search(text) is not None  # for the other ranks too: what the least has is the loop's own
        if waits and len(rows) < len(event.ranks):
            continue
        part, rank, *_ = min(rows, key=lambda row: row[0]) if waits else most(rows)
        loop = taken(training, part, rank)
        if not loop.is_much():
            if not waits and part >= SMALL and not COMMUNICATES.search(function_text(file, number)):
                short.setdefault(kind, {})[kind, file, number] = rows
            continue
        yield Finding(
            f"the loop at {file}:{number} {SAID[kind]}: {loop.text()}",
            tuple(seen(each, told, line, "" if at else "one call for all") for at, (_, each, told, line)
                  in enumerate(rows[:SHOWN])),
            Fix(f"{_fix(kind, text)}: {loop.promise} where it then takes next to nothing"),
            loop.place(file, number, len(rows), event),
        )  # fmt: skip

    for kind, loops in short.items():
        yield from _of_loops(kind, loops, event, training)


def _of_loops(kind: str, loops: dict[Group, list[Row]], event: StepsTimed, training: Training) -> Iterator[Finding]:
    """Tell of loops each of which takes little, and all of them much, on the rank that they take most of."""
    parts: dict[int, float] = {}
    for rows in loops.values():
        for part, rank, *_ in rows:
            parts[rank] = parts.get(rank, 0.0) + part
    rank = max(parts, key=parts.__getitem__)
    together = taken(training, parts[rank], rank)
    if len(loops) == 1 or not together.is_much():
        return
    longest = sorted(loops.items(), key=lambda each: -max(row[0] for row in each[1]))
    (_, file, number), _ = longest[0]
    yield Finding(
        f"{len(loops)} loops {ALL_SAID[kind]}, and take {together.text(' a step together')}",
        tuple(seen(*most(rows)[1:], "" if at else "one call for all") for at, (_, rows) in enumerate(longest[:SHOWN])),
        Fix(
            f"{_fix(kind, loop_text(file, number))}, in each of them: {together.promise} where they then "
            "take next to nothing"
        ),
        together.place(file, number, len(parts), event),
    )


def _rows(training: Training) -> int:
    """Return how many samples the model is given at a time, as far as that was seen."""
    sizes = [each.batch_size or 0 for each in training.of(EpochStarted, training=True)]
    return max([*sizes, *(each.rows for each in training.of(StepFingerprinted))], default=0)


def _fix(kind: str, text: str) -> str:  # noqa: PLR0911 - one a kind
    if kind == SAMPLES:
        return "give the layers the whole batch: they take any leading dimension; pad samples of different lengths"
    if kind == FILLED:
        return (
            "make it at once: torch.arange(n) < lengths[:, None] for a mask by length, torch.tril for a causal one, "
            "torch.nn.utils.rnn.pad_sequence for rows, scatter_ or index_put_ for the rest"
        )
    if kind == ROWS:
        return (
            "give the loss the whole batch: with reduction='none' it returns one number for each row, to be weighed "
            "and averaged at once; the backward is shorter as well"
        )
    if kind == NUMBERS:
        return "compute on whole tensors ((predictions == labels).sum(), torch.bincount), or once in many steps"
    if "all_reduce" in text:
        return "let DistributedDataParallel send the gradients, in a few buckets and while the backward computes"
    if "broadcast" in text:
        return (
            "leave it out where DistributedDataParallel trains the model: the replicas stay equal, and it sends the "
            "buffers itself; else send them flattened, in one call"
        )
    if "histogram" in text:
        return "look at the parameters once in a hundred steps"
    if PENALTY.search(text):
        return "let the optimizer do it (weight_decay=...), or add up one tensor (torch.cat of them, flattened)"
    if AVERAGE.search(text):
        return (
            "update the average with one call (AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999)) of "
            "torch.optim.swa_utils), or in every tenth step with the decay to the tenth power"
        )
    return "do it with one call for the list of them (torch._foreach_...), or once in many steps"
