"""One rank waits for its data longer than the others, and they wait for it.

## What happens

The ranks meet in each backward. If one of them gets its batch later (its part of the data lies on a slower disk, its
samples are larger, its workers share cores), all others stand until it has come: the slowest loader sets the pace.

## How to be sure

`ddpdoctor run --profile 50 -- COMMAND`: the rank's share of waiting for data is large, and the others' backward is
longer by as much. ddpdoctor finds it where that is more than a fifth of the step and 5 ms, of the same rank in nearly
all of 40 steps or more; and not where its wait for a core explains that (with `--profile` and `num_workers=0` that wait
is left out, so that a loaded machine does not hide it). Workers load ahead: of two loaders that are nearly as slow one
waits for all, the other for nothing. So nothing is said where the others' workers keep them waiting as well, and of a
loader with workers not how much slower it is. Of trainings on a GPU it says nothing.

## How to mend it

Find out what this rank reads that the others do not: its files, its disk, the sizes of its samples. Shuffle with a
DistributedSampler, so that large samples are spread; bucket by length on all ranks alike; give its workers cores of
their own.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: PyTorch documentation, "Distributed Data Parallel", internal design.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, EpochStarted, Finding, Fix, LineKind, Severity, StepsTimed, Training, place, watch

from .._lines import loads, of_kind, seen as seen_line
from .._steps import LARGE, Behind, all_wait_at_times, behind, on_cpu, seen
from ._what_it_reads import look_at_what_it_reads

AILMENT = Ailment("DDP903", Severity.NOTE)
SHOWN = 4  # ranks


@watch(StepsTimed)
def while_training(event: StepsTimed, training: Training) -> Iterator[Finding]:
    """Look for the rank that the loader keeps waiting longest, in step after step."""
    on_cpu(event)
    late = behind(event, "data")
    if late is None:
        return
    passes = training.of(EpochStarted, training=True, rank=late.rank.rank)
    has_workers = bool(passes and passes[-1].workers)
    others = [each for each in event.ranks if each is not late.rank]
    more = loads(training, late.rank.rank) - max(loads(training, each.rank) for each in others)
    if max(late.share - late.rank.starved, 0.0 if has_workers else min(late.share, more)) < LARGE:
        return
    if has_workers and all_wait_at_times(event):
        return
    others = others[: SHOWN - 1]
    yield Finding(
        f"rank {late.rank.rank} waits for its data {1e3 * late.seconds:.0f} ms a step longer than the others, which "
        f"wait for it: {late.share:.0%} of each step",
        (
            seen(late.rank, "data", "waits for data", "as the other ranks"),
            *(seen(each, "data", "waits for data") for each in others),
            *(seen(each, "backward", "backward, with its wait for the others,") for each in (late.rank, *others)),
            *(seen_line(*each) for each in of_kind(training, LineKind.DATA) if each[0] == late.rank.rank),
        ),
        _fix(late, has_workers=has_workers),
        place(passes[-1].site if passes else None, rank=late.rank.rank),
    )


def _fix(late: Behind, *, has_workers: bool) -> Fix:
    number = late.rank.rank
    look = look_at_what_it_reads(number)
    if has_workers:
        return Fix(
            "time the loader alone on each rank: workers load ahead, so that all wait for the last of loaders that are "
            f"nearly as slow. Are they alike, give each more workers; else {look}"
        )
    return Fix(f"{look}: {late.promise} where it loads as fast as the others")
