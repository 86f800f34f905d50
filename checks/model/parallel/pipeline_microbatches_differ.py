"""The ranks of one pipeline cut their batches into different numbers of microbatches.

## What happens

Each rank of a pipeline makes a schedule for its own stage: `ScheduleGPipe(stage, n_microbatches=4)`. Stages hand on
one microbatch after the other, and the number is told to nobody. A stage that counts more of them waits for one that
never comes; one that counts fewer takes the first ones for all, or fails at the shape of its targets ("The size of
tensor a (4) must match the size of tensor b (8)"), with an error that looks like one of its own.

## How to be sure

Print `n_microbatches` on each rank. ddpdoctor (`ddpdoctor run`) compares them when the schedules are made, among the
ranks of one pipeline.

## How to mend it

Take the number from what all ranks have alike, an argument of the command, say; where each rank works out its own, as
by the memory of its GPU, agree on the largest: `dist.all_reduce(number, op=dist.ReduceOp.MAX)`.

## Versions and sources

Holds for torch 2.4 and later; seen with torch 2.13 CPU. Source: torch/distributed/pipelining/schedules.py,
`PipelineScheduleSingle` and `PipelineScheduleMulti`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, PipelineScheduled, Severity, Training, place, watch

AILMENT = Ailment("DDP2502", Severity.ERROR)


@watch(PipelineScheduled)
def while_training(event: PipelineScheduled, training: Training) -> Iterator[Finding]:
    """Compare a schedule with the first one of the same pipeline, and of this number, that differs from it."""
    alike = training.by_rank(PipelineScheduled, number=event.number, group=event.group, schedule=event.schedule)
    other = next((each for each in alike.values() if each.microbatches != event.microbatches), None)
    if other is None or len({each.microbatches for each in alike.values() if each.rank != event.rank}) != 1:
        return  # it was told when the second one came
    one, two = sorted((event, other), key=lambda each: each.rank or 0)
    most = max(one.microbatches, two.microbatches)
    yield Finding(
        f"the stages of one pipeline count different microbatches: {one.microbatches} on rank {one.rank}, "
        f"{two.microbatches} on rank {two.rank}",
        tuple(
            Evidence(
                f"{each.schedule}, n_microbatches={each.microbatches}", "the same on all its ranks", f"rank {rank}"
            )
            for rank, each in alike.items()
        )[:8],
        Fix(
            "give all ranks of the pipeline the same number",
            diff=f"-schedule = {event.schedule}(stage, n_microbatches=...)\n"
            f"+schedule = {event.schedule}(stage, n_microbatches={most})   # on all ranks",
        ),
        place(event.site, rank=event.rank),
    )
