"""Each step goes through all that the steps before it have left: it takes longer and longer.

## What happens

`losses.append(loss)` and then `sum(losses) / len(losses)`, an accuracy over `torch.cat(all_logits)`, a table that is
joined with one row more (`table = pd.concat([table, row])`): the list is a little longer in each step, and each step
goes through all of it. The hundredth step does a hundred times what the first one did; twice the steps take four times
as long. Where a few hundred steps hardly show it, an epoch of a hundred thousand stands still.

## How to be sure

`ddpdoctor run --profile 50 -- COMMAND` looks every few milliseconds where the thread that trains is. ddpdoctor finds a
line of your own that takes a tenth of the time or more, and 2 ms of a step, in every tenth step or more often, and
that goes through a list or a tensor to which each step adds, and from which none takes anything: the source says so.
What is emptied in the step, or holds a fixed number (`deque(maxlen=100)`), is none. Where the rank waits for a core,
that wait is left out. The row of characters beside each rank shows whether steps became slower.

## How to mend it

Keep the sum and the count instead of the list: `total += loss.detach(); count += 1`, and `total / count`. For what
needs all of it (an AUC, a quantile), compute it once, after the epoch, or of the last hundred steps. Join lists once,
at the end: `torch.cat(parts)`, `pd.concat(rows)`.

## Versions and sources

Holds for every version of torch.
"""

from __future__ import annotations

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
from ..source._past import past_at
from ._own_code import PAST
from ._rows import SHOWN, most, rows_of, taken

AILMENT = Ailment("DDP923", Severity.NOTE)


@watch(StepsTimed)
def while_training(event: StepsTimed, training: Training) -> Iterator[Finding]:
    """Look for lines that go through what grows with each step, on any rank."""
    for (_, file, number), rows in rows_of(event, training, {PAST}).items():
        part, rank, _, line = most(rows)
        through, past = taken(training, part, rank), past_at(file, number, line.file, line.line)
        if past is None or not through.is_much():
            continue
        yield Finding(
            f"{file}:{number} goes through all of {past.name}, to which each step adds: "
            f"{through.text(' a step so far')}, and more with each step",
            (
                Evidence(f"{past.name} becomes longer", "as long as before", f"{past.file}:{past.line}"),
                *(seen(each, told, row) for _, each, told, row in rows[:SHOWN]),
            ),
            Fix(
                f"keep the sum and the count of what {past.name} holds, or go through it once, after the epoch: "
                f"{through.promise}, and no more in later steps"
            ),
            through.place(file, number, len(rows), event),
        )
