"""Repeated measurements, and when two of them differ."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

LEAST = 1.02  # a ratio below this is no difference that anybody pays for


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of repeated measurements, and the least and the greatest of them; any unit."""

    low: float
    middle: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Sum up at least one measurement."""
    return Spread(min(values), statistics.median(values), max(values))


def slowest(ranks: Sequence[Sequence[float]]) -> list[float]:
    """Return for each repetition what the slowest rank needed."""
    return [max(each) for each in zip(*ranks, strict=True)]


def ratios(values: Sequence[float], base: Sequence[float]) -> Spread:
    """Compare measurements that were made in turn, round by round."""
    return spread([value / other for value, other in zip(values, base, strict=True)])


def is_faster(ratio: Spread) -> bool:
    """Whether each single round says so: of five rounds without a difference, one case in 32 does."""
    return ratio.high * LEAST < 1


def is_slower(ratio: Spread) -> bool:
    """Whether each single round says so."""
    return ratio.low > LEAST
