"""A part of the model is in training mode on some ranks, and in evaluation mode on others, while it is trained.

## What happens

In evaluation mode dropout passes everything and batch normalisation uses what it has kept, which it does not update. A
rank that has come back from its own evaluation, or from a checkpoint, without `model.train()` computes other gradients
than the rest for the same samples, and DDP averages both: no error, a worse model, and statistics that depend on which
rank is asked.

## How to be sure

ddpdoctor compares right after sampled steps which modules of the wrapped models are in evaluation mode on each rank,
and says it when two such steps after one another agree.

## How to mend it

    model.train()

on every rank at the start of each epoch. A part that is to stay in evaluation mode is so on all ranks.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "torch.nn.Module", train.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Severity, StepFingerprinted, Training, place, watch

from ..._ledgers.ledger import of_all_ranks
from .._words import listed

AILMENT = Ailment("DDP576", Severity.WARNING)


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Compare the modes of two steps after one another, once all ranks that are seen have told them."""
    last = next(training.before(event, optimizer=event.optimizer), None)
    if last is None:
        return
    now, before = _modes(event, training), _modes(last, training)
    differ = [name for rank, each in now.items() for name in each if not all(name in other for other in now.values())]
    differ = [name for name in dict.fromkeys(differ) if any(name in each for each in before.values())
              and not all(name in each for each in before.values())]  # fmt: skip
    if not differ:
        return
    yield Finding(
        f"the ranks train in different modes: {listed(differ, 4)} in evaluation mode on some of them",
        tuple(
            Evidence(
                f"in evaluation mode: {listed(each, 4) or 'nothing'}", "the same on all ranks",
                f"rank {rank}, step {event.number}",
            )
            for rank, each in list(now.items())[:8]
        ),
        Fix("put the model into training mode on every rank", diff="+model.train()\n for inputs, targets in loader:"),
        place(event.site),
    )  # fmt: skip


def _modes(event: StepFingerprinted, training: Training) -> dict[int, tuple[str, ...]]:
    ranks = of_all_ranks(event, training)
    return (
        {}
        if any(each.subgroups for each in ranks.values())
        else {rank: each.evaluating for rank, each in ranks.items()}
    )
