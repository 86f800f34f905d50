"""Where the steps of each rank went, as the report has it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.blocks import PARTS

if TYPE_CHECKING:
    from ddpdoctor.watch.events import RankSteps


def steps_data(ranks: Iterable[RankSteps]) -> dict[str, Any]:
    """Return by rank what a step took: seconds, of each part the tenth, the median and the nine tenths of its spans.

    ``spans`` has the course: of each span its end (seconds of the host's monotonic clock) and the seconds of all of it
    and of each part.
    """
    return {
        str(each.rank): {
            "steps": each.steps,
            "seconds": each.seconds,
            "device": each.device,
            "waited_for_a_core": each.starved,
            "a_step": {part: list(spread(each.a_step(part))) for part in ("total", *PARTS)},
            "spans": [
                [round(span.end / 1e9, 6), *(round(getattr(span, part) / 1e9, 6) for part in ("total", *PARTS))]
                for span in each.spans
            ],
        }
        for each in ranks
    }


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Return what a tenth of the values lies below, the median, and what a tenth lies above."""
    ordered = sorted(values)
    tenth = len(ordered) // 10
    return ordered[tenth], statistics.median(ordered), ordered[-1 - tenth]
