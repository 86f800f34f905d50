"""The rank that computes longer than the others in forward and backward, by the processor's time of each step.

By the clock the backward of all ranks takes as long as that of the slowest one, since it ends with their communication.
"""

from __future__ import annotations

import statistics

from ddpdoctor.check import LineKind, LinesSampled, Profiled, StepsTimed, Training

from .._steps import LARGE, LEAST, STEADY, Behind

LONGER = 1.4  # times the others' time: cores that are shared, or run at other speeds, differ by a quarter


def computes_longer(event: StepsTimed, training: Training) -> Behind | None:
    """Find the rank whose steps take much more of the processor, nearly each of them, while the others wait."""
    measured = {rank: each for rank, each in training.by_rank(Profiled).items() if any(each.worked)}
    if len(measured) < max(2, len(event.ranks)):
        return None
    worked = {rank: statistics.median(each.worked) for rank, each in measured.items()}
    worst = max(worked, key=lambda rank: worked[rank])
    others = [rank for rank in measured if rank != worst]
    if worked[worst] < LONGER * max(worked[rank] for rank in others):
        return None
    columns = zip(
        measured[worst].worked, measured[worst].total, *(measured[rank].worked for rank in others), strict=False
    )
    more = [(mine - statistics.median(theirs)) / max(1, total) for mine, total, *theirs in columns]
    excess, total = statistics.median(more), statistics.median(measured[worst].total) / 1e9
    waits = _waits(training)
    if worst not in waits or excess < LARGE or excess * total < LEAST:
        return None
    if sum(each >= LARGE / 2 for each in more) < STEADY * len(more):
        return None
    waited = min(waits.get(rank, 0.0) for rank in others) - waits[worst]
    if waited < excess * total / 2:
        return None
    rank = next((each for each in event.ranks if each.rank == worst), None)
    took = tuple(each / 1e9 for each in measured[worst].total[: len(more)])
    return Behind(rank, excess * total, excess, took, tuple(more)) if rank is not None else None


def _waits(training: Training) -> dict[int, float]:
    """Return the seconds of a step in which each rank is in backward, and neither computes nor lacks a core."""
    return {
        rank: sum(max(0, line.nanoseconds - line.processor - line.waited) for line in told.sampled
                  if line.kind == LineKind.BACKWARD) / max(1, told.steps) / 1e9
        for rank, told in training.by_rank(LinesSampled).items()
    }  # fmt: skip
