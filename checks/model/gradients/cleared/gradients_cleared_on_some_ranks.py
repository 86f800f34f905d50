"""Some ranks clear their gradients between two steps, and others do not.

## What happens

`backward()` adds to the gradients that are there. Where `optimizer.zero_grad()` stands behind a condition that is not
the same on all ranks (`if rank == 0:`, a test of this rank's own loss), the ranks that leave it out add each batch to
the gradients of all batches before. DistributedDataParallel averages whatever it finds: all ranks then step with the
mean of one rank's gradient and another rank's pile. The weights stay equal, nothing fails, and the training is another
one than it says.

## How to be sure

ddpdoctor looks, in sampled steps, at what is left of the gradients when the first backward after a step begins. Here
some ranks begin with none, or with zeros, and others with those of the step before, at two compared steps.

Silent where all ranks clear, or none does: what is added up on purpose is added up everywhere. Silent where there are
groups of some ranks, and where the ranks begin with different weights.

## How to mend it

Clear on all ranks, after each step:

    optimizer.step()
    optimizer.zero_grad()

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, `Optimizer.zero_grad`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Carried,
    Evidence,
    Finding,
    Fix,
    Place,
    Severity,
    StepFingerprinted,
    Training,
    place,
    watch,
)

from ...._ledgers.calls import calls_of
from ...._ledgers.ledger import built, of_all_ranks
from ...._ledgers.sheets import EXCLUSIVE

AILMENT = Ailment("DDP559", Severity.ERROR)
CLEARS = frozenset({"zero_grad"})
FIX = Fix(
    "clear the gradients on all ranks",
    diff="-if dist.get_rank() == 0:\n-    optimizer.zero_grad()\n+optimizer.zero_grad()",
)


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Compare what the ranks have begun two steps with."""
    ranks = _left(event, training)
    before = [each for each in training.before(event, optimizer=event.optimizer) if each.number < event.number]
    pasts = [_left(each, training) for each in before]
    found = _keepers(ranks)
    past = [_keepers(each) for each in pasts]
    if not found or not past or past[0] != found or any(past[1:]):
        return
    told = {rank: each for rank, each in ranks.items() if each is not None}
    cleared = next((each for rank, each in told.items() if rank not in found and each.file), None)
    yield Finding(
        f"rank {', '.join(map(str, found))} of {len(told)} {'keeps' if len(found) == 1 else 'keep'} the gradients of "
        "the steps before, and the others clear theirs",
        tuple(_seen(rank, each, event.number, kept=rank in found) for rank, each in list(told.items())[:8]),
        FIX,
        _line(event, training, cleared),
    )


def _left(event: StepFingerprinted, training: Training) -> dict[int, Carried | None]:
    """Return what each rank has begun a step with, where all train one model; empty before all have told."""
    ranks = of_all_ranks(event, training)
    held = [built(each, training) for each in ranks.values()]
    names = {each.names for each in held if each is not None}
    operations = {name for each in ranks.values() for name, *_ in each.sent}
    otherwise = any(each.subgroups for each in ranks.values()) or operations & EXCLUSIVE
    if not ranks or otherwise or len(names) > 1 or None in held or len(ranks) < training.world_size:
        return {}
    return {rank: each.carried for rank, each in ranks.items()}


def _keepers(ranks: dict[int, Carried | None]) -> list[int]:
    """Return the ranks that have begun with gradients, where others have begun with none at all."""
    known = {rank: each.parameters for rank, each in ranks.items() if each is not None}
    if len(known) < len(ranks) or all(known.values()):
        return []
    return [rank for rank, count in known.items() if count]


def _seen(rank: int, left: Carried, number: int, *, kept: bool) -> Evidence:
    what = (
        f"{left.parameters} gradients that are not zero, norm {left.norm:.4g}, when the first backward begins"
        if kept
        else "no gradient when the first backward begins"
    )
    return Evidence(what, "none on all ranks" if kept else "", f"rank {rank}, step {number}")


def _line(event: StepFingerprinted, training: Training, cleared: Carried | None) -> Place:
    """Return the line by which the others clear, or the only one that does, or that of the step."""
    if cleared is not None:
        return Place(file=cleared.file, line=cleared.line)
    held = built(event, training)
    files = {each.file for each in (event.site, held.site if held else None) if each is not None}
    calls = calls_of(files, CLEARS)
    return calls[0] if len(calls) == 1 else place(event.site)
