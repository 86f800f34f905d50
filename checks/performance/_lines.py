"""The lines of the training loop that the time goes to, as they were looked at every few milliseconds."""

from __future__ import annotations

import linecache
from collections.abc import Iterator

from ddpdoctor.check import STARVED, Evidence, LineKind, LinesSampled, RankSteps, SampledLine, Training

WAITS = (LineKind.BACKWARD, LineKind.COLLECTIVE, LineKind.OBJECTS_EXCHANGED, LineKind.BUFFERS_BROADCAST)
"""What ends when other ranks have come: they wait for cores as well."""
LOADS = (LineKind.DATA, LineKind.LOADER_BEGUN)
"""What may end when other processes have: the workers of a loader."""
STANDS_OUT = 0.1  # of the time
HARDLY = 0.02  # of the time: a line in which the others are so seldom is none of theirs


def share(told: LinesSampled, line: SampledLine, rank: RankSteps) -> float:
    """Return a line's share of the time; where the rank waits for a core, no more than without what that takes.

    Of a line in which the rank waits for others, which wait for a core themselves, no more counts then than its share
    of what the thread computes.
    """
    clock = line.nanoseconds / max(1, told.nanoseconds)
    if rank.starved <= STARVED or not told.processor:
        return clock
    computes = line.processor / told.processor
    if line.kind in {*WAITS, *LOADS} or not told.waited:
        return min(clock, computes)
    return min(clock, max(computes, own(line) / max(1, told.nanoseconds - told.waited)))


def own(line: SampledLine) -> int:
    """Return the nanoseconds of a line in which the thread did not wait for a core: it computed, or slept."""
    return max(0, line.nanoseconds - line.waited)


def place_text(line: SampledLine) -> str:
    """Return where a line spends its time, innermost of the user's."""
    return f"{line.inner_file}:{line.inner_line} in {line.inner_function}"


def seen(rank: int, told: LinesSampled, line: SampledLine, expected: str = "") -> Evidence:
    """Return a line of a rank's loop with its share of the time, and what it spends that in."""
    shown = f"{line.nanoseconds / max(1, told.nanoseconds):.0%} of the time at {line.file}:{line.line}"
    if (line.inner_file, line.inner_line) != (line.file, line.line):
        shown += f", {line.most / max(1, told.nanoseconds):.0%} of it at {place_text(line)}".replace(" of it", "", 1)
    text = linecache.getline(line.inner_file, line.inner_line).strip()
    return Evidence(f"{shown}: {text}" if text else shown, expected, f"rank {rank}, {told.steps} steps")


def more_than_others(training: Training, rank: int) -> SampledLine | None:
    """Return the line that a rank spends more of its time in than all others do; None where none stands out."""
    told = training.by_rank(LinesSampled)
    if rank not in told:
        return None
    others = [_shares(each) for number, each in told.items() if number != rank]
    found = [
        (mine - max((each.get(key, 0.0) for each in others), default=0.0), key)
        for key, mine in _shares(told[rank]).items()
        if key[0] not in WAITS
    ]
    most, key = max(found, default=(0.0, ("", "", 0)))
    lines = (each for each in told[rank].sampled if (each.kind, each.file, each.line) == key)
    return next(lines, None) if most >= STANDS_OUT else None


def is_of_others(training: Training, rank: int, line: SampledLine) -> bool:
    """Whether other ranks spend some of their time in a line as well."""
    return any(
        (each.file, each.line) == (line.file, line.line) and each.nanoseconds >= HARDLY * told.nanoseconds
        for number, told in training.by_rank(LinesSampled).items()
        if number != rank
        for each in told.sampled
    )


def of_kind(training: Training, kind: str) -> Iterator[tuple[int, LinesSampled, SampledLine]]:
    """Yield the longest line of each rank that does such a thing."""
    for rank, told in sorted(training.by_rank(LinesSampled).items()):
        line = next((each for each in told.sampled if each.kind == kind), None)
        if line is not None:
            yield rank, told, line


def loads(training: Training, rank: int) -> float:
    """Return what share of its time, without its waits for a core, the thread is in its loader; 0 if not looked at."""
    told = training.by_rank(LinesSampled).get(rank)
    if told is None or not told.waited:
        return 0.0
    return sum(own(each) for each in told.sampled if each.kind in LOADS) / max(1, told.nanoseconds - told.waited)


def computes_while_loading(training: Training, rank: int) -> float | None:
    """Return for what part of the time in its loader the thread computes; None where that was not looked at."""
    told = training.by_rank(LinesSampled).get(rank)
    lines = [each for each in (told.sampled if told else ()) if each.kind in LOADS]
    spent = sum(map(own, lines))
    return sum(each.processor for each in lines) / spent if spent else None


def computes_to_load(training: Training, rank: int) -> float:
    """Return the seconds of a step that the thread computes in its loader; 0 where that was not looked at."""
    told = training.by_rank(LinesSampled).get(rank)
    lines = [each for each in (told.sampled if told else ()) if each.kind in LOADS]
    return sum(each.processor for each in lines) / max(1, told.steps) / 1e9 if told else 0.0


def computed(training: Training, rank: int, kind: str) -> float:
    """Return what share of the thread's computing goes to one kind of work; 0 where that was not looked at."""
    told = training.by_rank(LinesSampled).get(rank)
    if told is None or not told.processor:
        return 0.0
    return sum(each.processor for each in told.sampled if each.kind == kind) / told.processor


def _shares(told: LinesSampled) -> dict[tuple[str, str, int], float]:
    return {(each.kind, each.file, each.line): each.nanoseconds / max(1, told.nanoseconds) for each in told.sampled}
