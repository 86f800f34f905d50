"""Iterable data sets that workers read, and give the same batches in each pass though their source shuffles."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ddpdoctor.check import DataSeen, EpochStarted, OrderSeen, Site, Training, last_name

from .._streams import SHUFFLES, function_of

PASSES = 3
FEWEST = 2  # batches


@dataclass(frozen=True, slots=True)
class Repeated:
    """The pass that was like those before, the batches, the line that shuffles, and whether it speaks of an epoch."""

    started: EpochStarted
    digests: tuple[str, ...]
    line: Site
    knows_epoch: bool


def repeated_by_workers(event: OrderSeen, training: Training) -> Repeated | None:
    """Return what the third pass has repeated, where the data set's own code puts something in an order at random."""
    told = [each for each in training.of(OrderSeen, pid=event.pid, loader=event.loader) if each.number < PASSES]
    started = training.of(EpochStarted, pid=event.pid, loader=event.loader, number=event.number)
    if event.number != PASSES - 1 or len(told) != PASSES or not started or not all(each.trained for each in told):
        return None
    first = started[0]
    if not first.iterable or not first.workers or first.persistent or first.owning_library:
        return None  # of workers that live on, and of a stream without any, other checks speak
    same = {each.digests for each in told}
    if len(same) != 1 or len(set(event.digests)) < FEWEST:
        return None
    seen = next(iter(training.of(DataSeen, pid=event.pid, loader=event.loader)), None)
    line = _shuffles(seen.reader) if seen is not None and seen.reader is not None else None
    return Repeated(first, event.digests, *line) if line is not None else None


def _shuffles(reader: Site) -> tuple[Site, bool] | None:
    """Return the line of a data set's class that shuffles, and whether that, or what seeds it, speaks of an epoch."""
    for method in ast.walk(function_of(reader)):
        if isinstance(method, ast.FunctionDef) and method.name != "__init__":  # which shuffles once, as is meant
            calls = [each for each in ast.walk(method) if isinstance(each, ast.Call)]
            lines = [each.lineno for each in calls if last_name(each.func) in SHUFFLES]
            if lines:
                return reader._replace(line=min(lines)), "epoch" in ast.unparse(method)
    return None
