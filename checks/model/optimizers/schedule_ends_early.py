"""A schedule that Accelerate steps for each rank has come to 0, and the training goes on.

## What happens

A scheduler that `accelerator.prepare` has returned makes as many steps as there are ranks with each call to `step()`:
its length is meant to be counted in batches of one process. Where its length was counted from the prepared loader,
which is as much shorter, the learning rate comes to 0 after half of the training with two ranks, after an eighth with
eight. From there on the optimizer steps with a learning rate of 0: nothing is learned, and the time is lost.

## How to be sure

Print `scheduler.get_last_lr()` in each epoch. In a running training (`ddpdoctor run`) the learning rates have been 0
for more than a fifth of all steps of the schedule.

## How to mend it

Count the length before `prepare`, or for all ranks:

    steps = epochs * len(loader)  # of the prepared loader
    scheduler = get_linear_schedule_with_warmup(optimizer, warmup, steps * accelerator.num_processes)

or leave the scheduler out of `prepare` and step it once for each batch.

## Versions and sources

Source: accelerate/scheduler.py, `AcceleratedScheduler.step`; Accelerate documentation, "Comparing performance across
distributed setups". Seen with accelerate 1.15 and torch 2.13 CPU.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, ScheduleEnded, Severity, place, watch

AILMENT = Ailment("DDP1549", Severity.WARNING)


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
