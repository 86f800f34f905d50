"""The model is called twice with the same batch: once to train, and once more for a metric.

## What happens

`loss = criterion(model(x), y)` trains, and `accuracy(model(x), y)` below it, in `torch.no_grad()`, computes the outputs
again: a forward is a third of what a step computes. The outputs of the first one were there. (With dropout the two
differ, and after `optimizer.step()` the weights do: for a metric of a training batch neither matters.)

## How to be sure

`ddpdoctor run --profile 50 -- COMMAND` shows both lines with their share of the time. ddpdoctor finds a line without
gradients (`torch.no_grad()`, `torch.inference_mode()`) that takes a tenth of the time or more, and 2 ms of a step, and
calls the same model (with or without `.module`) with the same arguments as the step's own forward, none of which was
bound anew between the two, or changed by a method that ends in `_`: the source says so.

## How to mend it

Keep the outputs: `logits = model(x)`, `loss = criterion(logits, y)`, and `accuracy(logits.detach(), y)`.

## Versions and sources

Holds for every version of torch.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    Severity,
    StepsTimed,
    Training,
    watch,
)

from .._lines import seen
from ..source._again import first_forward
from ._own_code import AGAIN
from ._rows import SHOWN, most, rows_of, taken

AILMENT = Ailment("DDP925", Severity.NOTE)


@watch(StepsTimed)
def while_training(event: StepsTimed, training: Training) -> Iterator[Finding]:
    """Look for a second forward of the same batch, on any rank."""
    for (_, file, number), rows in rows_of(event, training, {AGAIN}).items():
        part, rank, *_ = most(rows)
        again = taken(training, part, rank)
        if not again.is_much():
            continue
        first = first_forward(file, number)
        yield Finding(
            f"{file}:{number} calls the model with the batch that line {first} has called it with: "
            f"{again.text()}",
            (
                *(seen(each, told, line, "" if at else "the outputs of the first forward")
                  for at, (_, each, told, line) in enumerate(rows[:SHOWN])),
                Evidence(linecache.getline(file, first).strip(), "", f"{file}:{first}"),
            ),
            Fix(f"keep the outputs of line {first} in a variable, and use them, detached: {again.promise}"),
            again.place(file, number, len(rows), event),
        )  # fmt: skip
