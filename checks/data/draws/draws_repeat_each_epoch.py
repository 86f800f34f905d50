"""Each epoch draws the same random numbers, because the generators are seeded anew.

## What happens

A helper that seeds (`set_seed(42)`) is called in each epoch, or in the evaluation at its end. From there on torch
draws what it has drawn in the epoch before: the same noise, dropout masks and mixes, and, since a DataLoader seeds its
workers by that generator, the same augmentations in the workers of all epochs. Nothing fails; the model sees less
variety than it should.

## How to be sure

Print `torch.initial_seed()` and `torch.rand(1)` at the start of two epochs, or in the training's `ddpdoctor run` look
at the finding: ddpdoctor compares the state of torch's generators when the model is given the first batches of an
epoch with that of the epochs before, without setting it. Reported are three passes of one training that began in one
state, where numbers are drawn within a pass.

## How to mend it

Seed once, before the training, or with the epoch: `torch.manual_seed(seed + epoch)`. An evaluation that needs fixed
numbers has a generator of its own, or gives the state back: `with torch.random.fork_rng(): ...`.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "Reproducibility".
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, Drew, Evidence, Finding, Fix, Severity, Training, Wrapped, place, watch

AILMENT = Ailment("DDP627", Severity.WARNING)
PASSES = 3


@watch(Drew)
def while_training(event: Drew, training: Training) -> Iterator[Finding]:
    """Compare the state in which passes of a loader had their second batch."""
    if event.batch != 2 or event.number != PASSES - 1:  # noqa: PLR2004 - what the first one draws shows
        return
    having = {"pid": event.pid, "loader": event.loader}
    second = training.of(Drew, **having, batch=2)[:PASSES]
    first = training.of(Drew, **having, batch=1)[:PASSES]
    wrapped = [each.time for each in training.of(Wrapped, pid=event.pid)]
    if len(second) < PASSES or len(first) < PASSES or any(time > first[0].time for time in wrapped):
        return
    same = len({each.state for each in second}) == len({each.state for each in first}) == 1
    if not same or first[0].state == second[0].state:
        return
    yield Finding(
        f"each epoch draws the same random numbers: {PASSES} passes have begun with torch's generator in one state",
        (
            *(
                Evidence(f"state {one.state} at batch 1, {other.state} at batch 2", "another in each epoch",
                         f"rank {event.rank}, epoch {one.number}")
                for one, other in zip(first, second, strict=True)
            ),
        ),
        Fix(
            "seed once, before the training; or with the epoch",
            diff="-torch.manual_seed(seed)\n+torch.manual_seed(seed + epoch)",
        ),
        place(event.site),
    )  # fmt: skip
