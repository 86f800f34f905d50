"""Where the steps of each rank went, as the report has it."""

from __future__ import annotations

import linecache
import re
import statistics
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.events import CallsTimed, Failed, LinesSampled, Profiled, Stalled
from ddpdoctor.watch.events.steps.blocks import PARTS
from ddpdoctor.watch.figures.compared import first_apart

if TYPE_CHECKING:
    from ddpdoctor.watch.events import RankSteps
    from ddpdoctor.watch.training import Training

DOUBLED = re.compile(
    r"^[^#]*(\bnn\.|model|net\b|module)[^#]*\.(double\(\)|(to|type)\([^#]*(torch\.(float64|double|DoubleTensor)\b))"
)
MEASURED = ("total", "exposed", "hidden", "worked")


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


def profile_data(training: Training) -> dict[str, Any]:
    """Return by rank what was measured closely: median seconds of a step and of its communication, what it cost."""
    return {
        str(rank): {
            "steps": len(each.total),
            **{
                name: list(spread([value / 1e9 for value in getattr(each, name)]))
                for name in MEASURED
                if getattr(each, name)
            },
            "buckets": list(each.buckets),
            "reduced": round(min(each.synced, each.backwards)),
            "searched_in_vain": each.searches and not each.unused,
            "float64": each.double,
            "float64_at": _doubled_at(training, rank) if each.double else "",
            "cost": each.cost,
            "calls": _calls(training, rank),
            "lines": _lines(training, rank),
            "links": [
                {"to": one.peer, "over": one.interface, "bytes": one.sent, "busy": one.busy / max(1, each.window)}
                for one in each.links
            ],
        }
        for rank, each in training.by_rank(Profiled).items()
    }


def _doubled_at(training: Training, rank: int) -> str:
    """Return the line that makes the model double; empty where there is none in the files of the loop, or several."""
    told = training.by_rank(LinesSampled).get(rank)
    files = sorted({file for each in (told.sampled if told else ()) for file in (each.file, each.inner_file)})
    found = [
        f"{file}:{at}" for file in files for at, text in enumerate(linecache.getlines(file), 1) if DOUBLED.search(text)
    ]
    return found[0] if len(found) == 1 else ""


def _calls(training: Training, rank: int) -> list[dict[str, Any]]:
    """Return the lines that kept the steps of a rank waiting, seconds of the median step, longest first."""
    if (told := training.by_rank(CallsTimed).get(rank)) is None:
        return []
    return [
        {
            "what": each.what,
            "file": each.file,
            "line": each.line,
            "calls": each.times / told.steps,
            "seconds": each.nanoseconds / 1e9,
        }
        for each in told.calls
        if each.nanoseconds
    ]


def _lines(training: Training, rank: int) -> list[dict[str, Any]]:
    """Return the lines of the loop that makes the steps: share of the time by the clock, and of the processor's."""
    if (told := training.by_rank(LinesSampled).get(rank)) is None:
        return []
    return [
        {
            "kind": each.kind,
            "file": each.file,
            "line": each.line,
            "function": each.function,
            "share": each.nanoseconds / max(1, told.nanoseconds),
            "processor": each.processor / max(1, told.processor),
            "steps": each.steps,
            "inner": {
                "file": each.inner_file,
                "line": each.inner_line,
                "function": each.inner_function,
                "share": each.most / max(1, told.nanoseconds),
            },
        }
        for each in told.sampled
    ]


def marks(trainings: Iterable[Training]) -> list[dict[str, Any]]:
    """Return the moments of trainings that a picture of their course has: seconds of the host's monotonic clock."""
    shift = time.time() - time.monotonic()
    found = []
    for training in trainings:
        if stalled := training.of(Stalled):
            found.append((stalled[0].time - max(each.seconds for each in stalled[0].ranks), "the ranks stand still"))
        if failed := sorted(training.of(Failed), key=lambda each: each.time):
            who = "the launcher" if failed[0].rank is None else f"rank {failed[0].rank}"
            found.append((failed[0].time, f"{who} fails: {failed[0].error}"))
        if (apart := first_apart(training)) is not None:
            found.append((apart.time, f"the weights of the ranks are no longer equal, seen in step {apart.number}"))
    return [{"at": at - shift, "what": what} for at, what in sorted(found)]


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Return what a tenth of the values lies below, the median, and what a tenth lies above."""
    ordered = sorted(values)
    tenth = len(ordered) // 10
    return ordered[tenth], statistics.median(ordered), ordered[-1 - tenth]
