"""A schedule that Accelerate steps for each rank ends sooner than the training.

## What happens

A scheduler that `accelerator.prepare` has returned makes as many steps as there are ranks with each call to `step()`:
its length is meant to be counted in batches of one process. Where its length was counted from the prepared loader,
which is as much shorter, the learning rate comes to 0 after half of the training with two ranks, after an eighth with
eight. From there on the optimizer steps with a learning rate of 0: nothing is learned, and the time is lost.

The same with a schedule that counts epochs, and is stepped once in each: `StepLR(optimizer, 30)` of eight processes
lowers the learning rate in every fourth epoch, and `CosineAnnealingLR(optimizer, epochs)` has gone up and down four
times when the training ends.

## How to be sure

Print `scheduler.get_last_lr()` in each epoch. In a running training (`ddpdoctor run`) the learning rates have been 0
for more than a fifth of all steps of the schedule. In a source (`ddpdoctor lint`): a schedule of torch is given to
`prepare`, and `step()` of what it returns is called in a loop whose batches are gone through by another loop.

## How to mend it

Count the length before `prepare`, or for all ranks:

    steps = epochs * len(loader)  # of the prepared loader
    scheduler = get_linear_schedule_with_warmup(optimizer, warmup, steps * accelerator.num_processes)

or leave the scheduler out of `prepare` and step it once for each batch, or each epoch.

## Versions and sources

Source: accelerate/scheduler.py, `AcceleratedScheduler.step`; Accelerate documentation, "Comparing performance across
distributed setups". Seen with accelerate 1.15 and torch 2.13 CPU.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, ScheduleEnded, Severity, lint, place, watch

from ._prepared_schedules import stepped_each_epoch

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP1549", Severity.WARNING)


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a prepared schedule that is stepped once an epoch."""
    for step, made in stepped_each_epoch(script, project):
        yield Finding(
            f"{script.code(step)} stands behind the batches of an epoch, and makes as many steps of the schedule as "
            "there are processes: Accelerate has prepared it",
            (script.seen(step, "one step an epoch"), Evidence(ast.unparse(made), "", f"line {made.lineno}")),
            Fix("leave the schedule out of accelerator.prepare, so that each call makes one step"),
            script.place(step),
        )


@watch(ScheduleEnded)
def while_training(event: ScheduleEnded) -> Iterator[Finding]:
    """Report it once for the training, by rank 0."""
    if event.rank == 0:
        yield Finding(
            f"the learning rate is 0, and the training goes on: each call of scheduler.step() makes {event.ranks} "
            "steps of the schedule",
            (
                Evidence(
                    f"0 in the last {event.idle} of {event.made} calls",
                    "0 at the end of the training at the earliest",
                    "scheduler.get_last_lr()",
                ),
            ),
            Fix(
                "count the schedule's length for all ranks",
                diff="-scheduler = get_scheduler(name, optimizer, warmup, num_training_steps)\n"
                "+scheduler = get_scheduler(name, optimizer, warmup * accelerator.num_processes, "
                "num_training_steps * accelerator.num_processes)",
            ),
            place(event.site),
        )
