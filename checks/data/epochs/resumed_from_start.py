"""A resumed training begins with its first epoch again.

## What happens

A checkpoint is loaded, weights and optimizer, and the loop over epochs starts at 0 all the same: the number that the
checkpoint has is not read, or not given to `range()`. The training repeats what it has done: `set_epoch` gives each
sampler the orders of the first epochs again, schedules that go by the epoch start anew, and the last epochs are trained
twice, or, where a job is ended by its time limit again and again, never reached. The checkpoint says a lower epoch
from then on.

## How to be sure

Print the epoch after a resume. ddpdoctor (`ddpdoctor run`) reports a training that gave its optimizer the state of a
checkpoint, and then wrote a checkpoint of that name which says to be less far than the one that it began with.

## How to mend it

    start_epoch = 0
    if os.path.exists(path):
        checkpoint = torch.load(path, map_location="cpu")
        ...
        start_epoch = checkpoint["epoch"] + 1
    for epoch in range(start_epoch, epochs):
        sampler.set_epoch(epoch)

## Versions and sources

Holds for all versions of torch; seen with torch 2.13 CPU, for checkpoints of torch.save that are dictionaries with an
epoch, an iteration or a step. Source: PyTorch documentation, "Saving and loading a general checkpoint";
torch.utils.data.distributed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ddpdoctor.check import (
    Ailment,
    Evidence,
    FileWritten,
    Finding,
    Fix,
    OptimizerLoaded,
    Severity,
    Training,
    place,
    watch,
)

AILMENT = Ailment("DDP634", Severity.WARNING)


@watch(FileWritten)
def while_training(event: FileWritten, training: Training) -> Iterator[Finding]:
    """Compare the first checkpoint that is written with the one that the optimizer's state is from."""
    loaded = [each for each in training.of(OptimizerLoaded, pid=event.pid) if each.path and each.time <= event.time]
    if training.framework is not None or not loaded or not event.steps or _name(loaded[-1].path) != _name(event.path):
        return
    if any(each.progress and each.time > loaded[-1].time for each in training.before(event)):
        return
    then, now = dict(loaded[-1].progress), dict(event.progress)
    back = next((key for key in now if key in then and now[key] < then[key]), None)
    if back is None or any(now[key] > then[key] for key in now if key in then):
        return
    yield Finding(
        f"the training goes on from a checkpoint of {back} {then[back]}, and is at {back} {now[back]} now: it has "
        "begun from the start again",
        (
            Evidence(f"{Path(loaded[-1].path).name} had {back} {then[back]}, and gave the optimizer its state", "",
                     str(loaded[-1].site or "")),
            Evidence(f"{Path(event.path).name} is written with {back} {now[back]}", f"{then[back]} or more",
                     str(event.site or "")),
        ),
        Fix(
            "let the loop begin where the checkpoint ends",
            diff=f'+start = checkpoint["{back}"] + 1\n-for {back} in range(total):\n'
            f"+for {back} in range(start, total):",
        ),
        place(loaded[-1].site),
    )  # fmt: skip


def _name(path: str) -> str:
    """Return a path without the numbers in its last part: ``epoch_3.pt`` is followed by ``epoch_4.pt``."""
    return str(Path(path).with_name(re.sub(r"\d+", "", Path(path).name)))
