"""The training waits for data: all ranks spend much of each step in the loader.

## What happens

A batch takes longer to load than to train on. With `num_workers=0` the rank itself loads it, and trains on nothing
meanwhile; with too few workers it waits for the next one. More GPUs, or faster ones, change nothing of that: two ranks
that wait are no faster than one.

## How to be sure

`ddpdoctor run --profile 50 -- COMMAND` shows by rank where a step goes. By hand: iterate over the loader without
training; if that takes as long as the training, the loader is what you wait for. ddpdoctor finds it where all ranks
wait for more than three tenths of the step, in nearly all of 40 steps or more, and longer than 5 ms a step; and not
where the ranks, or their workers, wait for a core that other processes have: then nothing can be told, unless the rank
loads by itself, and three tenths of what it computes, or does without waiting for a core, go there (with `--profile`,
which names the line). Of trainings on a GPU it says nothing: a rank that waits for data there can have kernels that
still run.

## How to mend it

Give the loader workers, as many as the cores divided by the ranks of the host; keep them with
`persistent_workers=True`. Where all cores are at work already, or the storage is what is slow: decode once and store
the result, use a cheaper transform, or read from a local disk.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: PyTorch Performance Tuning Guide, "Enable asynchronous data loading and
augmentation".
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ddpdoctor.check import Ailment, EpochStarted, Finding, Fix, Severity, StepsTimed, Training, place, watch

from ._lines import computed, loads, of_kind, seen as seen_line
from ._steps import LEAST, STEADY, middle, on_cpu, seen, share

AILMENT = Ailment("DDP901", Severity.NOTE)
MUCH = 0.3  # of a step
BUSY = 0.3  # of the time: workers would wait for a core as the ranks do
SHOWN = 4  # ranks


@watch(StepsTimed)
def while_training(event: StepsTimed, training: Training) -> Iterator[Finding]:
    """Compare the time in the loader with the step, on all ranks."""
    on_cpu(event)
    passes = training.of(EpochStarted, training=True)
    for each in event.ranks:
        shares = each.shares("data")
        steady = sum(value >= MUCH / 2 for value in shares) >= STEADY * len(shares)
        waits = share(each, "data")
        by_itself = computed(training, each.rank, "data")
        if not any(one.workers for one in passes if one.rank == each.rank):
            by_itself = max(by_itself, loads(training, each.rank))
        by_itself = min(waits, by_itself)  # on a busy machine as on an idle one
        if not steady or max(waits - each.starved, by_itself) < MUCH or middle(each, "data") < LEAST:
            return
    if passes:
        least = min(event.ranks, key=lambda each: share(each, "data"))
        yield Finding(
            f"the training waits for data {share(least, 'data'):.0%} of the time or more, on "
            f"{'each of ' if len(event.ranks) > 1 else ''}{len(event.ranks)} rank{'s' if event.ranks[1:] else ''}",
            tuple(
                seen(each, "data", "waits for data", "next to nothing" if each is event.ranks[0] else "")
                for each in event.ranks[:SHOWN]
            )
            + tuple(seen_line(*each) for each in [*of_kind(training, ("data",))][:1]),
            _fix(event, passes[-1]),
            place(passes[-1].site),
        )


def _fix(event: StepsTimed, last: EpochStarted) -> Fix:
    """Return how many workers keep up with the training, where the cores of the host suffice."""
    rank = max(event.ranks, key=lambda each: middle(each, "data"))
    waiting, training = middle(rank, "data"), middle(rank, "total") - middle(rank, "data")
    loading = waiting if not last.workers else last.workers * (waiting + training)
    cores = max(1, rank.cpus // len(event.ranks))
    wanted = min(cores, math.ceil(loading / max(training, 1e-4)))
    if wanted <= last.workers:
        return Fix("make a sample cheaper: store it decoded, use a cheaper transform, or read from a local disk")
    then = max(training, loading / wanted)
    promise = f"about {1e3 * then:.0f} instead of {1e3 * (waiting + training):.0f} ms a step, where {wanted} cores "
    alone = f"{promise}a rank are free" if wanted > 1 else f"{promise.removesuffix('cores ')}core a rank is free"
    if rank.starved > BUSY:
        alone = "it helps where a core a rank is free; on this machine the ranks wait for one now"
    if last.iterable:
        return Fix(f"let {wanted} workers load, each its own part of the IterableDataset (get_worker_info): {alone}")
    return Fix(
        f"let workers load while the ranks train: {alone}",
        diff=f"-DataLoader(..., num_workers={last.workers})\n"
        f"+DataLoader(..., num_workers={wanted}, persistent_workers=True)",
    )
