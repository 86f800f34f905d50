"""A schedule is made for the steps of the optimizer and stepped with each micro-batch, or the other way round.

## What happens

With accumulation the optimizer steps once in k micro-batches. A schedule that is made for the optimizer's steps, and
whose `step()` stands outside the `if`, is over after a k-th of the training: the learning rate is 0, or rises again,
and the rest of the training teaches nothing. A schedule that is made for all micro-batches, and stepped with the
optimizer, comes to a k-th of its way: a warm-up takes k times as long, and the rate is never lowered. Nothing fails.

## How to be sure

Print `scheduler.get_last_lr()` at the end. ddpdoctor (`ddpdoctor run`) compares, when the training ends, the length of
each schedule with its own steps, with those of its optimizer, and with the backwards: it is as long as one of the last
two, and has made as many steps as the other.

## How to mend it

One count for both:

    steps = epochs * (len(loader) // accumulate)
    scheduler = CosineAnnealingLR(optimizer, T_max=steps)
    ...
        if (index + 1) % accumulate == 0:
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()

Silent where a schedule has as many steps as it is made for, whichever these are, or goes on from a checkpoint.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Looked at are schedulers of torch, and whole numbers that the
function of a LambdaLR computes with, as its source says, or was made with. Source: PyTorch documentation,
torch.optim.lr_scheduler.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    ScheduleAtEnd,
    Severity,
    StepsAtEnd,
    Training,
    place,
    watch,
)

AILMENT = Ailment("DDP1510", Severity.WARNING)
SEVERAL = 2  # micro-batches a step
NEAR = 0.05  # of a number of steps, that a last incomplete accumulation makes of it


@watch(ScheduleAtEnd)
def of_schedule(event: ScheduleAtEnd, training: Training) -> Iterator[Finding]:
    """Compare a schedule with the steps of its optimizer, if these were told before."""
    ended = training.of(StepsAtEnd, pid=event.pid, optimizer=event.optimizer)
    if ended:
        yield from _compare(event, ended[-1], training)


@watch(StepsAtEnd)
def of_steps(event: StepsAtEnd, training: Training) -> Iterator[Finding]:
    """Compare the steps of an optimizer with its schedule, if that was told before."""
    if len(training.of(StepsAtEnd, pid=event.pid, optimizer=event.optimizer)) == 1:
        for each in training.of(ScheduleAtEnd, pid=event.pid, optimizer=event.optimizer):
            yield from _compare(each, event, training)


def _compare(schedule: ScheduleAtEnd, steps: StepsAtEnd, training: Training) -> Iterator[Finding]:
    optimizers = {each.optimizer for each in training.of(StepsAtEnd, pid=steps.pid)}
    if schedule.rank != 0 or schedule.began or training.framework is not None or len(optimizers) > 1:
        return
    made, stepped, backwards = schedule.made, steps.number, steps.backwards
    if backwards < SEVERAL * stepped or any(_near(each, made) for each in schedule.lengths):
        return
    if _near(made, backwards):
        meant, told = stepped, f"steps with each of {backwards} micro-batches"
    elif _near(made, stepped):
        meant, told = backwards, f"steps with each of {stepped} steps of the optimizer"
    else:
        return
    length = next((each for each in schedule.lengths if _near(each, meant)), None)
    if length is None:
        return
    counted = "steps of the optimizer" if meant == stepped else "micro-batches"
    yield Finding(
        f"the schedule {schedule.kind} is made for {length} {counted}, and {told}: {_outcome(length, made)}",
        (
            Evidence(f"{made} steps of the schedule", f"{length}, for which it is made", "the end of the training"),
            Evidence(f"{stepped} steps of the optimizer, {backwards} backwards", "", "the end of the training"),
        ),
        Fix(
            "step the schedule right after the optimizer, and make it for as many steps",
            diff="+steps = epochs * (len(loader) // accumulate)\n if (index + 1) % accumulate == 0:\n"
            "     optimizer.step()\n+    scheduler.step()",
        ),
        place(schedule.site),
    )


def _outcome(length: int, made: int) -> str:
    return (
        f"it was over after {length / made:.0%} of the training"
        if made > length
        else f"it has come to {made / length:.0%} of its way"
    )


def _near(number: int, other: int) -> bool:
    return abs(number - other) <= max(1, NEAR * other)
