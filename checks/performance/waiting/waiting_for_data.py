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

import ast
import linecache
import math
import re
import statistics
from collections.abc import Iterator, Sequence

from ddpdoctor.check import (
    STARVED,
    Ailment,
    EpochStarted,
    Evidence,
    Finding,
    Fix,
    LineKind,
    Severity,
    StepsTimed,
    Training,
    place,
    tree_of,
    watch,
)

from .._lines import computed, computes_while_loading, loads, of_kind, seen as seen_line
from .._steps import LEAST, STEADY, all_wait_at_times, behind, middle, on_cpu, promise, seen, share
from ._loops import INSTEAD, slow_loop
from ._same_file import ITEM, SameFile, same_file

AILMENT = Ailment("DDP901", Severity.NOTE)
MUCH = 0.3  # of a step
HALF = 0.5  # of the time
MOST = 16  # workers of a rank, where cores do not limit them
LOCKED = 0.1  # of the time
LOCKS = re.compile(r"\b(flock|lockf|FileLock|InterProcessLock|SoftFileLock|portalocker\.\w+)\(|\b\w*lock\w*\.acquire\(")
SHOWN = 4  # ranks


@watch(StepsTimed)
def while_training(event: StepsTimed, training: Training) -> Iterator[Finding]:
    """Compare the time in the loader with the step, on all ranks."""
    on_cpu(event)
    passes = training.of(EpochStarted, training=True)
    if not passes:
        return
    if _all_wait(event, training, passes):
        least = min(event.ranks, key=lambda each: share(each, "data"))
        said = f"the training waits for data {share(least, 'data'):.0%} of the time or more, on "
        said += f"{'each of ' if event.ranks[1:] else ''}{len(event.ranks)} rank{'s' if event.ranks[1:] else ''}"
    elif passes[-1].workers and (part := _in_turn(event)) is not None:
        said = f"the training waits for data {part:.0%} of the time: for the workers of one rank or of another, in turn"
    else:
        return
    sleeps = _sleeps(event, training, passes[-1])
    locked = _locked(training) or (_locked_by_workers(passes[-1]) if sleeps and passes[-1].workers else ())
    fix = _fix(event, passes[-1], sleeps=sleeps)
    if locked:
        fix = Fix(
            "read without a lock, or hold it for the writing alone: reading needs none, and under it the ranks, and "
            "their workers too, load one after another"
        )
    elif (anew := _read_anew(training)) is not None:
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
        + locked,
        fix,
        place(passes[-1].site),
    )


def _locked(training: Training) -> tuple[Evidence, ...]:
    """Return the line of a data set that waits for a lock between processes, where much of the loading goes there."""
    for _, told, line in of_kind(training, LineKind.DATA):
        for file, number, function, clock, *_ in line.inside:
            text = linecache.getline(file, number).strip()
            if LOCKS.search(text) and clock >= LOCKED * told.nanoseconds:
                part = clock / max(1, told.nanoseconds)
                return (Evidence(f"{part:.0%} of the time in a lock: {text}", "", f"{file}:{number} in {function}"),)
    return ()


def _locked_by_workers(last: EpochStarted) -> tuple[Evidence, ...]:
    """Return the line of the data set's class, beside the loop, in which each item takes a lock between processes."""
    file = last.site.file if last.site else ""
    for made in tree_of(file).of(ast.ClassDef) if file else ():
        for method in made.body if made.name == last.dataset else ():
            if not isinstance(method, ast.FunctionDef) or method.name not in ITEM:
                continue
            for number in range(method.lineno, (method.end_lineno or 0) + 1):
                text = linecache.getline(file, number).strip()
                if LOCKS.search(text):
                    seen_in = f"{file}:{number} in {method.name}"
                    return (
                        Evidence(f"the workers wait, and hardly compute; each item takes a lock: {text}", "", seen_in),
                    )
    return ()


def _read_anew(training: Training) -> tuple[float, str, SameFile] | None:
    """Return the call that reads the same file for each item, where most of the loading goes there: share, file, call.

    The share is the least of all ranks.
    """
    found: list[tuple[float, str, SameFile]] = []
    for _, told, line in of_kind(training, LineKind.DATA):
        spent: dict[tuple[str, SameFile], int] = {}
        for file, number, _function, clock, *_ in line.inside:
            if (same := same_file(file, number)) is not None:
                spent[file, same] = spent.get((file, same), 0) + clock
        most = max(spent, key=spent.__getitem__, default=None)
        if most is None or spent[most] < MUCH * line.nanoseconds or line.steps < STEADY * told.steps:
            return None
        found.append((spent[most] / max(1, told.nanoseconds), *most))
    return min(found, key=lambda each: each[0], default=None)


def _all_wait(event: StepsTimed, training: Training, passes: Sequence[EpochStarted]) -> bool:
    """Whether each rank waits for data, in nearly every step."""
    for each in event.ranks:
        shares = each.shares("data")
        steady = sum(value >= MUCH / 2 for value in shares) >= STEADY * len(shares)
        waits = share(each, "data")
        by_itself = 0.0  # of what it computes: so much on a busy machine as on an idle one
        if not any(one.workers for one in passes if one.rank == each.rank):  # else it takes in what they have loaded
            by_itself = min(waits, max(computed(training, each.rank, LineKind.DATA), loads(training, each.rank)))
        if not steady or max(waits - each.starved, by_itself) < MUCH or middle(each, "data") < LEAST:
            return False
    return True


def _in_turn(event: StepsTimed) -> float | None:
    """Return the share of its time that the rank waits for data which waits longest, now one and now another.

    Workers load ahead: while one rank waits for its own, those of the others get ahead.
    """
    one_is_behind = behind(event, "data") is not None and not all_wait_at_times(event)
    if one_is_behind or len({each.per for each in event.ranks}) > 1:
        return None
    by_rank = [{span.number: span for span in each.spans} for each in event.ranks]
    common = set.intersection(*map(set, by_rank))
    shares = [max(each[number].data / max(1, each[number].total) for each in by_rank) for number in common]
    if not shares or sum(each >= MUCH for each in shares) < STEADY * len(shares):
        return None
    part = statistics.median(shares) - max(each.starved for each in event.ranks)
    total = min(middle(each, "total") for each in event.ranks)
    return statistics.median(shares) if part >= MUCH and part * total >= LEAST else None


def _sleeps(event: StepsTimed, training: Training, last: EpochStarted) -> bool:
    """Whether what loads waits for the storage most of the time, and computes little: cores are not what it lacks."""
    if last.workers:
        return all(each.worked and each.worked + each.starved < HALF for each in event.ranks)
    parts = [computes_while_loading(training, each.rank) for each in event.ranks]
    return all(part is not None and part < HALF for part in parts)


def _fix(event: StepsTimed, last: EpochStarted, *, sleeps: bool) -> Fix:
    """Return how many workers keep up with the training: no more than the cores, but for such that hardly compute."""
    rank = max(event.ranks, key=lambda each: middle(each, "data"))
    waiting, training = middle(rank, "data"), middle(rank, "total") - middle(rank, "data")
    loading = waiting if not last.workers else last.workers * (waiting + training)
    cores = max(1, rank.cpus // len(event.ranks))
    if rank.cpus < 2 * len(event.ranks) and not sleeps:
        return Fix(
            f"make a sample cheaper: store it decoded, or use a cheaper transform; {len(event.ranks)} "
            f"rank{'s' if event.ranks[1:] else ''} on {rank.cpus} core{'s' if rank.cpus > 1 else ''} leave none to "
            "workers, which load meanwhile (num_workers) where there are more"
        )
    wanted = min(MOST if sleeps else cores, math.ceil(loading / max(training, 1e-4)))
    if wanted <= last.workers:
        return Fix("make a sample cheaper: store it decoded, use a cheaper transform, or read from a local disk")
    took, waits = rank.a_step("total"), rank.a_step("data")
    each_load = waits if not last.workers else [last.workers * each for each in took]
    saved = [whole - max(whole - wait, load / wanted) for whole, wait, load in zip(took, waits, each_load, strict=True)]
    then = promise(took, saved)
    if sleeps:
        alone = f"{then}; what loads waits for the storage and hardly computes, so they need no cores of their own"
    elif rank.starved > STARVED:
        alone = "it helps where a core a rank is free; on this machine the ranks wait for one now"
    else:
        alone = f"{then}, where {wanted} core{'s' if wanted > 1 else ''} a rank {'are' if wanted > 1 else 'is'} free"
    if last.iterable:
        return Fix(f"let {wanted} workers load, each its own part of the IterableDataset (get_worker_info): {alone}")
    return Fix(
        f"let workers load while the ranks train: {alone}",
        diff=f"-DataLoader(..., num_workers={last.workers})\n"
        f"+DataLoader(..., num_workers={wanted}, persistent_workers=True)",
    )
