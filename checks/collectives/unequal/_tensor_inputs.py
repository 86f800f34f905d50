"""Where, in a forward, the ranks of one tensor-parallel group begin to give their layers other values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.check import EpochStarted, OrderSeen, TensorParallelInput

if TYPE_CHECKING:
    from ddpdoctor.check import Site, Training

APART = 1e-3
"""Of the sizes of the values added up: far more than kernels differ by."""


@dataclass(frozen=True, slots=True)
class Apart:
    """What each rank gave a layer, the line of its forward, and whether an earlier layer was given the same by all.

    ``batches``: the ranks of the group have drawn the same samples, so that it is no matter of the batch.
    """

    given: dict[int, TensorParallelInput]
    site: Site | None
    between: bool
    batches: bool


def first_apart(event: TensorParallelInput, training: Training) -> Apart | None:
    """Return the first layer of the first forward that is given other values on each rank of the group.

    Asked when all ranks of it have begun the second forward. None where loaders have given them other samples.
    """
    first = [each.layer for each in training.of(TensorParallelInput, pid=event.pid, turn=1)][:1]
    again = training.by_rank(TensorParallelInput, group=event.group, turn=2, layer=event.layer)
    if event.turn != 2 or first != [event.layer] or len(again) < len(event.group):  # noqa: PLR2004 - the second forward
        return None
    orders = {each.indices for each in training.of(OrderSeen, number=0) if each.rank in event.group}
    samplers = [each.sampler for each in training.of(EpochStarted, number=0) if each.rank in event.group]
    if len(orders) > 1 or len({each.rank for each in samplers if each is not None}) > 1:
        return None
    for number, layer in enumerate(_in_order(event, training)):
        given = training.by_rank(TensorParallelInput, group=event.group, turn=1, layer=layer)
        if len(given) == len(event.group) and _differ(given):
            return Apart(given, given[event.group[0]].site, number > 0, bool(orders))
    return None


def _in_order(event: TensorParallelInput, training: Training) -> list[int]:
    """Return the layers in the order in which their first forwards came."""
    return [each.layer for each in training.of(TensorParallelInput, pid=event.pid, turn=1)]


def _differ(given: dict[int, TensorParallelInput]) -> bool:
    """Whether the values are others, in tensors of one shape."""
    first, *others = given.values()
    near = APART * max(each.size for each in given.values())
    return all(each.sizes == first.sizes for each in others) and any(
        max(abs(each.total - first.total), abs(each.size - first.size)) > near for each in others
    )
