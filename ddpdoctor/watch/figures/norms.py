"""What the ranks' optimizers were given, and held, in the steps that were compared: figures for pictures."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.figures.compared import compared_steps

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ddpdoctor.watch.events.steps.parts import Prints
    from ddpdoctor.watch.figures.compared import Step
    from ddpdoctor.watch.training import Training


def norms_data(trainings: Iterable[Training]) -> list[dict[str, Any]]:
    """Return, for each optimizer, the steps that were compared and a figure of each rank for each of them.

    ``gradients`` are norms of what the optimizer was given; ``weights`` say how far the rank's lie from the mean of
    the ranks, in share of that mean; ``losses`` is what backward was given; None where a rank has nothing. ``equal``
    names what was the same in all steps.
    """
    found = []
    for training in trainings:
        by_optimizer: dict[int, list[Step]] = {}
        for step in compared_steps(training):
            by_optimizer.setdefault(step.ranks[0].optimizer, []).append(step)
        found += [_of_optimizer(sorted(steps, key=lambda each: each.number)) for steps in by_optimizer.values()]
    return found


def _of_optimizer(steps: list[Step]) -> dict[str, Any]:
    ranks = sorted({int(each.rank or 0) for step in steps for each in step.ranks})
    figures: dict[str, dict[str, list[float | None]]] = {
        str(rank): {"gradients": [], "weights": [], "losses": []} for rank in ranks
    }
    for step in steps:
        told = {int(each.rank or 0): each for each in step.ranks}
        apart = distances([told[rank].values if rank in told else () for rank in ranks])
        for rank, distance in zip(ranks, apart, strict=True):
            figures[str(rank)]["gradients"].append(_norm(told[rank].given) if rank in told else None)
            figures[str(rank)]["weights"].append(distance)
            figures[str(rank)]["losses"].append(_number(told[rank].loss) if rank in told else None)
    equal = [
        what
        for what, name in (("gradients", "given"), ("weights", "values"))
        if all(step.is_equal(name) for step in steps)
    ]
    return {"steps": [step.number for step in steps], "equal": equal, "ranks": figures}


def _number(value: float | None) -> float | None:
    """Return a figure; None where it is no number, which no picture and no JSON has."""
    return value if value is not None and math.isfinite(value) else None


def _norm(prints: Prints) -> float | None:
    known = [each[-1] for each in prints if each is not None]
    return _number(math.hypot(*known)) if known else None


def distances(ranks: Sequence[Prints]) -> list[float | None]:
    """Return how far each rank lies from the mean of those that have all parameters, in share of the mean's size.

    The projections of a fingerprint are linear, so the mean of the ranks' is the mean's, and the length of a
    difference of projections stands to that of the mean as what they are projections of.
    """
    points = [
        [value for each in prints if each is not None for value in each[:-1]] if prints and None not in prints else []
        for prints in ranks
    ]
    known = [point for point in points if point]
    if not known or any(len(point) != len(known[0]) for point in known):
        return [None] * len(ranks)
    mean = [sum(values) / len(known) for values in zip(*known, strict=True)]
    size = math.hypot(*mean)
    return [_number(math.dist(point, mean) / size) if point and size else None for point in points]
