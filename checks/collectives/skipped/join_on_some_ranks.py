"""Some ranks run their loop within Join, and others do not.

## What happens

`with Join([model])` announces each forward of a rank to the others with a collective of its own, by which they learn
who has batches left. A rank outside of Join sends none: its first collective of the model meets the announcement of the
others. gloo ends a process for it ("op.preamble.length <= op.nbytes"), or all stand. Join must be entered by all ranks
that share the model, also by those that have batches enough.

## How to be sure

ddpdoctor records who enters `Join`, and `model.join()`: here some ranks have, and others have not, when the training
stands or a rank is lost.

## How to mend it

Enter it on all ranks, under no condition that differs between them:

    with Join([model]):
        for inputs, targets in loader:
            ...

## Versions and sources

Measured with torch 2.13, gloo, two ranks. Source: PyTorch documentation, "Generic Join Context Manager". Holds for
torch 2.2 to 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Severity, Stalled, Table, Training, place

from ..hangs._hangs import on_hang
from ..hangs._kinds import Hang
from ..hangs._losses import Loss, on_loss
from ..hangs._told import table
from ..hangs.reasons._joins import joined_by_some

AILMENT = Ailment("DDP1795", Severity.ERROR)


@on_hang(Hang.ENTERED)
def while_training(event: Stalled, training: Training) -> Iterator[Finding]:
    """Report it where all ranks wait."""
    yield from _finding(training, table(event))


@on_loss(Loss.ENTERED)
def where_it_ended_a_rank(training: Training) -> Iterator[Finding]:
    """Report it where gloo has ended a process for it."""
    yield from _finding(training, None)


def _finding(training: Training, shown: Table | None) -> Iterator[Finding]:
    found = joined_by_some(training)
    if found is None:
        return
    entered, others = found
    ours, first = [f"rank {rank}" for rank in entered], next(iter(entered.values()))
    theirs = [f"rank {rank}" for rank in others]
    inside, outside = (" and ".join(each[:4]) for each in (ours, theirs))
    yield Finding(
        f"{inside} runs within Join, {outside} does not: they meet in different collectives",
        (
            *(Evidence("has entered Join", "", f"{name}, {first.site}") for name in ours[:1]),
            *(Evidence("has never entered Join", "all ranks of the model enter it", name) for name in theirs[:4]),
        ),
        Fix(
            "enter Join on all ranks",
            diff="-with Join([model]) if rank == 1 else nullcontext():\n+with Join([model]):\n"
            "     for inputs, targets in loader:",
        ),
        place(first.site),
        table=shown,
    )
