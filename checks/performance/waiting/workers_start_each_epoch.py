"""Each epoch begins with a wait: the loader starts its workers anew.

## What happens

Without `persistent_workers=True` a DataLoader starts its worker processes in each epoch and ends them with it. Each of
them takes over the data set (with spawn it imports the program and unpickles the data set), and all ranks wait for the
first batch. Where epochs are short, that is a large part of the training.

## How to be sure

`ddpdoctor run --profile 50 -- COMMAND` shows "first batch": from the start of the loader to its first batch. ddpdoctor
finds it where that is more than a fifth of the time on all ranks, over three epochs or more, and a tenth of a second in
each; and not where each step begins a pass (needless-work-in-step). On a loaded machine a fifth of what
the thread computes has to go to the start and the end of workers, or three tenths of the time to the begin of epochs,
and three times as much as to all other waits for data.

## How to mend it

`DataLoader(..., persistent_workers=True)` keeps the workers. A data set that is changed between epochs (its transform,
its epoch) has to be changed in the workers as well then, as they keep their copy.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch's torch/utils/data/dataloader.py, `persistent_workers`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import (
    STARVED,
    Ailment,
    EpochStarted,
    Evidence,
    Finding,
    Fix,
    LineKind,
    RankSteps,
    Severity,
    StepsTimed,
    Training,
    place,
    watch,
)

from .._lines import computed
from .._steps import LARGE

AILMENT = Ailment("DDP902", Severity.NOTE)
FEWEST = 3  # epochs
EACH = 0.1  # seconds of an epoch
MOST = 0.6  # of the steps: who begins a pass in each of them takes one batch of it, and persistent workers end with it
MUCH, TIMES = 0.3, 3  # of the time, on a machine that is busy; how many times all other waits for data
SHOWN = 4  # ranks


@watch(StepsTimed)
def while_training(event: StepsTimed, training: Training) -> Iterator[Finding]:
    """Add up the time from the start of the loader to its first batch, but for the first epoch's."""
    found = []
    for each in event.ranks:
        passes = training.of(EpochStarted, training=True, rank=each.rank)
        begun = len(passes) - 1
        if begun < FEWEST or begun > MOST * each.steps or any(one.workers == 0 or one.persistent for one in passes):
            return
        waited = sum(span.first for span in each.spans) / 1e9
        by_itself = min(waited / each.seconds, computed(training, each.rank, LineKind.LOADER_BEGUN))
        certain = max(waited / each.seconds - each.starved, by_itself) >= LARGE or _stands_out(each, waited)
        if not certain or waited / begun < EACH:
            return
        found.append((each, waited, begun, passes[-1]))
    if found:
        least = min(waited / each.seconds for each, waited, *_ in found)
        workers = found[0][3].workers
        yield Finding(
            f"the loader starts its {workers} worker{'s' if workers > 1 else ''} anew in each epoch, and the ranks "
            f"wait for them {least:.0%} of the time",
            tuple(
                Evidence(
                    f"{waited / begun:.2f} s from the start of the loader to its first batch, in each of {begun} "
                    f"epochs: {waited:.1f} of {each.seconds:.1f} s",
                    "" if number else "once",
                    f"rank {each.rank}",
                )
                for number, (each, waited, begun, _) in enumerate(found[:SHOWN])
            ),
            Fix(
                "make the loader once, before the loop over epochs, and keep its workers"
                if len({one.loader for one in training.of(EpochStarted, training=True, rank=found[0][0].rank)}) > 1
                else "keep the workers from epoch to epoch",
                diff=f"-DataLoader(..., num_workers={workers})\n"
                f"+DataLoader(..., num_workers={workers}, persistent_workers=True)",
            ),
            place(found[0][3].loader_site or found[0][3].site),
        )


def _stands_out(rank: RankSteps, waited: float) -> bool:
    """Whether the begin of epochs takes much where ranks wait for cores: such a wait makes all parts longer alike."""
    later = sum(span.data for span in rank.spans) / 1e9
    return rank.starved > STARVED and waited >= MUCH * rank.seconds and waited >= TIMES * later
