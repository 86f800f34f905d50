"""Each step prepares its batch before it trains on it, which workers of the loader could have done meanwhile.

## What happens

Texts are split into tokens, images are decoded, lists are made tensors in the loop itself: the rank that does so trains
on nothing meanwhile, and the others wait for it in the backward. The loader's workers do the same beside the training,
a batch ahead.

## How to be sure

`ddpdoctor run --profile 50 -- COMMAND` looks every few milliseconds where the thread that trains is. ddpdoctor finds
lines of the loop that take a fifth of the time or more together, and 2 ms of a step, and that need the batch alone,
and what no step changes: by the names that they read in the source. A line that calls a model, an optimizer or other
ranks, or needs what one of these has made, is none. Where the rank waits for a core, that wait is left out. Of a
training on a GPU it says nothing: kernels may run meanwhile.

## How to mend it

Do it in `Dataset.__getitem__`, or for a whole batch in the loader's `collate_fn`, and give the loader workers
(`num_workers=2, persistent_workers=True`). What is the same in each epoch, do once, and store the result. Where all
cores are at work already, workers take them from the ranks: then a cheaper preparation is what helps.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: PyTorch Performance Tuning Guide, "Enable asynchronous data loading and
augmentation".
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Severity, StepsTimed, Training, watch

from .._lines import seen
from .._steps import on_cpu
from ._own_code import BATCH
from ._rows import SHOWN, Row, rows_of, taken

AILMENT = Ailment("DDP924", Severity.NOTE)
LARGE = 0.2  # of the time
WORTH = 0.03  # of the time: a line that takes less is not shown


@watch(StepsTimed)
def while_training(event: StepsTimed, training: Training) -> Iterator[Finding]:
    """Add up the lines of a rank that need the batch alone."""
    on_cpu(event)
    by_rank: dict[int, list[Row]] = {}
    for rows in rows_of(event, training, {BATCH}).values():
        for row in rows:
            by_rank.setdefault(row[1], []).append(row)
    if not by_rank:
        return
    rank, rows = max(by_rank.items(), key=lambda each: sum(row[0] for row in each[1]))
    prepared = taken(training, sum(row[0] for row in rows), rank)
    if not prepared.is_much(LARGE):
        return
    rows.sort(key=lambda row: -row[0])
    line = rows[0][3]
    shown = [row for row in rows[:SHOWN] if row[0] >= WORTH] or rows[:1]
    where = f"{line.file}:{line.line}" + (f" and {len(shown) - 1} more" if shown[1:] else "")
    yield Finding(
        f"each step prepares its batch at {where}: {prepared.text('')}, which needs nothing of the model",
        tuple(
            seen(number, told, each, "" if at else "done by the loader's workers meanwhile")
            for at, (_, number, told, each) in enumerate(shown)
        ),
        Fix(
            "do it in the data set's __getitem__ or in the loader's collate_fn, and let workers do that "
            f"(num_workers=2, persistent_workers=True): {prepared.promise}, where cores are free for "
            "them; or do it once, and store the result"
        ),
        prepared.place(line.file, line.line, len(by_rank), event),
    )
