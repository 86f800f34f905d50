"""Why the batches of a rank come late, and what mends it."""

from __future__ import annotations

import ast
import linecache
import math
import re
import statistics
from collections.abc import Sequence

from ddpdoctor.check import (
    STARVED,
    EpochStarted,
    Evidence,
    Fix,
    LineKind,
    StepsTimed,
    Training,
    tree_of,
)

from .._lines import computed, computes_while_loading, loads, of_kind
from .._steps import LEAST, STEADY, all_wait_at_times, behind, middle, promise, share
from ._same_file import ITEM, SameFile, same_file

MUCH = 0.3  # of a step
HALF = 0.5  # of the time
MOST = 16  # workers of a rank, where cores do not limit them
LOCKED = 0.1  # of the time
LOCKS = re.compile(r"\b(flock|lockf|FileLock|InterProcessLock|SoftFileLock|portalocker\.\w+)\(|\b\w*lock\w*\.acquire\(")


def locked(training: Training) -> tuple[Evidence, ...]:
    """Return the line of a data set that waits for a lock between processes, where much of the loading goes there."""
    for _, told, line in of_kind(training, LineKind.DATA):
        for file, number, function, clock, *_ in line.inside:
            text = linecache.getline(file, number).strip()
            if LOCKS.search(text) and clock >= LOCKED * told.nanoseconds:
                part = clock / max(1, told.nanoseconds)
                return (Evidence(f"{part:.0%} of the time in a lock: {text}", "", f"{file}:{number} in {function}"),)
    return ()


def locked_by_workers(last: EpochStarted) -> tuple[Evidence, ...]:
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


def read_anew(training: Training) -> tuple[float, str, SameFile] | None:
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


def all_wait(event: StepsTimed, training: Training, passes: Sequence[EpochStarted]) -> bool:
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


def in_turn(event: StepsTimed) -> float | None:
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


def sleeps(event: StepsTimed, training: Training, last: EpochStarted) -> bool:
    """Whether what loads waits for the storage most of the time, and computes little: cores are not what it lacks."""
    if last.workers:
        return all(each.worked and each.worked + each.starved < HALF for each in event.ranks)
    parts = [computes_while_loading(training, each.rank) for each in event.ranks]
    return all(part is not None and part < HALF for part in parts)


def mended_by(event: StepsTimed, last: EpochStarted, *, sleeps: bool) -> Fix:
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
