"""Each epoch draws the same random numbers, because the generators are seeded anew.

## What happens

A helper that seeds (`set_seed(42)`) is called in each epoch, or in the evaluation at its end. From there on torch
draws what it has drawn in the epoch before: the same noise, dropout masks and mixes, and, since a DataLoader seeds its
workers by that generator, the same augmentations in the workers of all epochs. Nothing fails; the model sees less
variety than it should.

## How to be sure

Print `torch.initial_seed()` and `torch.rand(1)` at the start of two epochs, or in the training's `ddpdoctor run` look
at the finding: ddpdoctor compares the state of torch's generators when the model is given the first batches of an
epoch with that of the epochs before, without setting it, and the seeds of generators that `__iter__` of an iterable
data set holds, where the loader has no workers, and where they change samples that are read: what a sample is wholly
made of is the same in all epochs on purpose. Reported are three passes of one training that began in one
state, where numbers are drawn within a pass.

## How to mend it

Seed once, before the training, or with the epoch: `torch.manual_seed(seed + epoch)`. An evaluation that needs fixed
numbers has a generator of its own, or gives the state back: `with torch.random.fork_rng(): ...`.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "Reproducibility".
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Drew,
    EpochStarted,
    Evidence,
    Finding,
    Fix,
    Severity,
    StreamSeen,
    Training,
    Wrapped,
    place,
    watch,
)

from .._lines import epoch_loop, seeded_in
from .._streams import changes_samples, drawing_alike, draws_noise_alone, passes, seeded_at

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
    started = training.of(EpochStarted, **having, number=event.number)
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
        place(seeded_in(epoch_loop(started[-1]) if started else None) or event.site),
    )  # fmt: skip


@watch(StreamSeen)
def of_a_stream(event: StreamSeen, training: Training) -> Iterator[Finding]:
    """Compare the states of generators that an iterable data set has of its own, in its first passes."""
    told = passes(event, training)
    if event.batch != 2 or len(told) != PASSES or event.site is None or event not in told[-1]:  # noqa: PLR2004
        return
    first, second = ([each[at] for each in told] for at in range(2))
    name = drawing_alike([first])
    states = [[state for own, state, _ in each.drawers if own == name] for each in (*first, *second)]
    anew = len({*map(tuple, states[:PASSES])}) == 1 or not name.startswith("self.")
    if not name or not anew or states[0] == states[PASSES] or not draws_noise_alone(event.site, name):
        return
    if not changes_samples(event.site, name):
        return
    yield Finding(
        f"each epoch draws the same random numbers: {PASSES} passes have begun with {name} seeded alike",
        tuple(
            Evidence(f"seed {seed or 'not known'}, state {state} after batch 1", "another seed in each epoch",
                     f"rank {event.rank}, pass {at}")
            for at, each in enumerate(first)
            for own, state, seed in each.drawers
            if own == name
        ),
        Fix(
            "seed with the epoch as well",
            diff="-noise = torch.Generator().manual_seed(seed)\n+noise = torch.Generator().manual_seed(seed + epoch)",
        ),
        place(seeded_at(event.site, name) or event.site),
    )  # fmt: skip
