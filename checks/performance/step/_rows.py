"""What the user's own lines do in the steps of each rank, and what share of its time that takes."""

from __future__ import annotations

from collections.abc import Container

from ddpdoctor.check import LinesSampled, Profiled, SampledLine, StepsTimed, Training

from .._lines import share
from ._own_code import Group, own_work

SOME_STEPS, FEWEST = 0.1, 5  # of those measured; how many at least
Row = tuple[float, int, LinesSampled, SampledLine]
"""The share of a rank's time, the rank, all of its lines, the line."""


def rows_of(event: StepsTimed, training: Training, kinds: Container[str]) -> dict[Group, list[Row]]:
    """Return a row for each rank that does one of these things in every tenth step or more often."""
    measured, ranks = training.by_rank(Profiled), {each.rank: each for each in event.ranks}
    groups: dict[Group, list[Row]] = {}
    for rank, told in sorted(training.by_rank(LinesSampled).items()):
        for key, line in own_work(told).items() if rank in ranks and rank in measured else ():
            if key[0] in kinds and line.steps >= max(FEWEST, SOME_STEPS * told.steps):
                groups.setdefault(key, []).append((share(told, line, ranks[rank]), rank, told, line))
    return groups
