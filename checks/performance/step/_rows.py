"""What the user's own lines do in the steps of each rank, and what share of its time that takes."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ddpdoctor.check import LinesSampled, Place, Profiled, SampledLine, StepsTimed, Training

from .._lines import share
from .._steps import promise_of_mean, without
from ._own_code import Group, own_work

SOME_STEPS, FEWEST = 0.1, 5  # of those measured; how many at least
LARGE, LEAST = 0.1, 0.002  # of the time; seconds of a step
SHOWN = 4  # ranks, or lines
Told = tuple[int, LinesSampled, SampledLine]
"""A rank, all of its lines, the line."""
Row = tuple[float, int, LinesSampled, SampledLine]
"""The share of a rank's time, the rank, all of its lines, the line."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A part of the steps of a rank that were measured closely, each of which took so many seconds in ``total``.

    ``is_mean``: that is what they took on average, since what takes the time is not in each of them.
    """

    part: float
    rank: int
    measured: Profiled
    total: float
    is_mean: bool = False

    def is_much(self, large: float = LARGE) -> bool:
        """Whether it is worth a finding."""
        return self.part >= large and self.part * self.total >= LEAST

    def text(self, of: str = " a step") -> str:
        """Return it in milliseconds, beside those of the step, and as a share."""
        return f"{1e3 * self.part * self.total:.1f} of {1e3 * self.total:.1f} ms{of}, {self.part:.0%}"

    @property
    def promise(self) -> str:
        """What a step takes without it."""
        return promise_of_mean(self.total, self.part) if self.is_mean else without(self.part, self.measured)

    def place(self, file: str, line: int, on: int, event: StepsTimed) -> Place:
        """Return a place in the source, on this rank where only so many ranks of all have it."""
        return Place(file=file, line=line, rank=self.rank if on < len(event.ranks) else None)


def taken(
    training: Training, part: float, rank: int, middle: Callable[[Sequence[int]], float] = statistics.mean
) -> Taken:
    """Return a part of a rank's steps, that are measured."""
    measured = training.by_rank(Profiled)[rank]
    return Taken(part, rank, measured, middle(measured.total) / 1e9, is_mean=middle is statistics.mean)


def most(rows: Iterable[Row]) -> Row:
    """Return the row of the rank that it takes most of."""
    return max(rows, key=lambda row: row[0])


def now_and_then(steps: int) -> float:
    """Return how many of the steps a line has to be seen in."""
    return max(FEWEST, SOME_STEPS * steps)


def rows_of(event: StepsTimed, training: Training, kinds: Container[str]) -> dict[Group, list[Row]]:
    """Return a row for each rank that does one of these things in every tenth step or more often."""
    groups: dict[Group, list[Told]] = {}
    for rank, told in sorted(training.by_rank(LinesSampled).items()):
        for key, line in own_work(told).items():
            if key[0] in kinds:
                groups.setdefault(key, []).append((rank, told, line))
    measured = {key: measured_rows(event, training, found) for key, found in groups.items()}
    return {key: rows for key, rows in measured.items() if rows}


def measured_rows(
    event: StepsTimed, training: Training, found: Iterable[Told], least: Callable[[int], float] = now_and_then
) -> list[Row]:
    """Return a row for each line of a rank whose steps were measured, that is seen in so many of them."""
    measured, ranks = training.by_rank(Profiled), {each.rank: each for each in event.ranks}
    return [
        (share(told, line, ranks[rank]), rank, told, line)
        for rank, told, line in found
        if rank in ranks and rank in measured and line.steps >= least(told.steps)
    ]


def own_lines(training: Training, kind: str) -> Iterator[Told]:
    """Yield the longest of each rank's own lines that do this, with all that belongs to it."""
    for rank, told in sorted(training.by_rank(LinesSampled).items()):
        lines = [line for (does, *_), line in own_work(told).items() if does == kind]
        if lines:
            yield rank, told, max(lines, key=lambda each: each.nanoseconds)
