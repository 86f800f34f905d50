"""A value of one rank is divided by the number of ranks, and nobody has added up those of all.

## What happens

`loss / world_size` is the second half of a mean over the ranks. Where the first half, `dist.all_reduce(loss)`, is left
out, lost in an edit, or stands in a branch that is not taken, what is printed, logged or compared is one rank's own
value, N times too small. It shrinks with each GPU that is added, and looks like progress.

## How to be sure

ddpdoctor follows the divided value back through its function: it comes from this rank's own loss or counts, and no line
of the function gives it, or what it was computed from, to a collective, nor to a function that could.

Silent where the value goes into `backward()`, for which the division can be meant; where it is a size, a rate or a
number of steps, which are shared out among the ranks; and where it is a parameter of a function whose name does not
say that it reduces.

## How to mend it

    dist.all_reduce(loss)
    loss /= dist.get_world_size()

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, torch.distributed.all_reduce.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    Place,
    Severity,
    StepFingerprinted,
    Training,
    WeightsFingerprinted,
    lint,
    tree_of,
    watch,
)

from .._scripts.source import is_own
from ._unsummed import WORLD, Division, divisions

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP767", Severity.WARNING)
EARLY = 2  # steps


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for such a division."""
    if not is_own(script, known={"accelerate"}) or not any(each in script.text for each in WORLD):
        return
    for each in divisions(script.tree.module):
        yield _finding(each, Place(file=str(script.path), line=each.line))


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Look into the files of a training that runs on several ranks."""
    yield from _in_files(event, training)


@watch(WeightsFingerprinted)
def without_optimizer(event: WeightsFingerprinted, training: Training) -> Iterator[Finding]:
    """Look into the files of one in which no optimizer steps."""
    yield from _in_files(event, training)


def _in_files(event: StepFingerprinted | WeightsFingerprinted, training: Training) -> Iterator[Finding]:
    first = event.rank == 0 and event.number == EARLY and not getattr(event, "optimizer", 0)
    if not first or event.site is None or training.world_size < EARLY or training.framework is not None:
        return
    for each in divisions(tree_of(event.site.file).module):
        yield _finding(each, Place(file=event.site.file, line=each.line))


def _finding(found: Division, where: Place) -> Finding:
    return Finding(
        f"{found.value} is divided by the number of ranks, and is one rank's own: nobody has added up those of all",
        (
            Evidence(found.code, f"dist.all_reduce({found.value}) before it", f"{where.file}:{found.line}"),
            Evidence(f"{found.value} is computed from this rank's own numbers", "", f"{where.file}:{found.computed}"),
        ),
        Fix(
            "add up the values of all ranks first",
            diff=f"+torch.distributed.all_reduce({found.value})\n {found.code}",
        ),
        where,
    )
