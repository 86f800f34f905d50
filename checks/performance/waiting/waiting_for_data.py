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
which names the line). Where workers load ahead, it is found as well if now one rank waits so long and now another, each
for its own: all others wait for that one. Of trainings on a GPU it says nothing: a rank that waits for data there can
have kernels that still run.

## How to mend it

Give the loader workers, as many as the cores divided by the ranks of the host; keep them with
`persistent_workers=True`. More than that where they wait for the storage and hardly compute. Where the data set holds a
lock between processes (`fcntl.flock`, `FileLock`), read without it: workers would wait for it too. Where each item
reads the same file anew (`json.load(open(self.path))`, `pandas.read_csv(self.path)` in `__getitem__`), read it once in
`__init__` and keep it: workers come second, since each of them would read it as often. Where a Python loop goes through
numbers, or fills a tensor piece by piece, compute on whole tensors first. Where all cores are at work already, or the
storage is what is slow: decode once and store the result, use a cheaper transform, or read from a local disk.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: PyTorch Performance Tuning Guide, "Enable asynchronous data loading and
augmentation".
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    EpochStarted,
    Finding,
    Fix,
    LineKind,
    Severity,
    StepsTimed,
    Training,
    place,
    watch,
)

from .._lines import of_kind, seen as seen_line
from .._steps import middle, on_cpu, promise, seen, share
from ._causes import all_wait, in_turn, locked, locked_by_workers, mended_by, read_anew, sleeps
from ._loops import INSTEAD, slow_loop

AILMENT = Ailment("DDP901", Severity.NOTE)
SHOWN = 4  # ranks


@watch(StepsTimed)
def while_training(event: StepsTimed, training: Training) -> Iterator[Finding]:
    """Compare the time in the loader with the step, on all ranks."""
    on_cpu(event)
    passes = training.of(EpochStarted, training=True)
    if not passes:
        return
    if all_wait(event, training, passes):
        least = min(event.ranks, key=lambda each: share(each, "data"))
        said = f"the training waits for data {share(least, 'data'):.0%} of the time or more, on "
        said += f"{'each of ' if event.ranks[1:] else ''}{len(event.ranks)} rank{'s' if event.ranks[1:] else ''}"
    elif passes[-1].workers and (part := in_turn(event)) is not None:
        said = f"the training waits for data {part:.0%} of the time: for the workers of one rank or of another, in turn"
    else:
        return
    asleep = sleeps(event, training, passes[-1])
    held = locked(training) or (locked_by_workers(passes[-1]) if asleep and passes[-1].workers else ())
    fix = mended_by(event, passes[-1], sleeps=asleep)
    if held:
        fix = Fix(
            "read without a lock, or hold it for the writing alone: reading needs none, and under it the ranks, and "
            "their workers too, load one after another"
        )
    elif (anew := read_anew(training)) is not None:
        part, where, same = anew
        rank = max(event.ranks, key=lambda each: middle(each, "data"))
        took = rank.a_step("total")
        then = promise(took, [part * each for each in took])
        said += f"; each item reads the same file ({same.path}) anew, in {where}:{same.line}, {part:.0%} of the time"
        fix = Fix(
            f"it is the same file for each item: {same.keep}, {then}; num_workers second, for what is slow still",
            diff=same.diff,
        )
    elif (loop := slow_loop(training)) is not None:
        rank = max(event.ranks, key=lambda each: middle(each, "data"))
        took = rank.a_step("total")
        then = promise(took, [loop.share * each for each in took])
        said += f"; {loop.said}"
        fix = Fix(
            f"{INSTEAD[loop.kind]}: {then} where it then takes next to nothing; num_workers second, where cores are "
            "free, for what is slow still"
        )
    yield Finding(
        said,
        tuple(
            seen(each, "data", "waits for data", "next to nothing" if each is event.ranks[0] else "")
            for each in event.ranks[:SHOWN]
        )
        + tuple(seen_line(*each) for each in [*of_kind(training, LineKind.DATA)][:1])
        + held,
        fix,
        place(passes[-1].site),
    )
