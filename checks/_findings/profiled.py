"""What the steps say that were measured closely."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from ddpdoctor.check import Profiled


def step_seconds(measured: Mapping[int, Profiled]) -> float:
    """Return the median seconds of a step, of all ranks."""
    return statistics.median(value / 1e9 for each in measured.values() for value in each.total)
