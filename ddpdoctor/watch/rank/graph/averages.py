"""How much of a loss one element is: what each of its terms was divided by, as its graph has it.

Read are numbers that torch has saved as they were, as for ``constants``: what a hook has packed is left alone, and a
number on a device is copied there and read when the step is told.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ddpdoctor.watch.events import LossTerm
from ddpdoctor.watch.rank.graph.constants import is_packed, tells_hooks

NODES = 64  # of a graph, from the loss on: what has more was added up in a loop
MOST = 8  # terms of a loss
PASSED = {"AddBackward0", "SubBackward0", "NegBackward0", "ToCopyBackward0", "SqueezeBackward0", "ViewBackward0"}
MEAN, SUM = 1, 2  # what torch calls these reductions
LOSSES = ("MseLoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "BinaryCrossEntropy")
"""What a loss's function is called in a graph, where it is the mean over all of its elements."""
EXACT = 2**24  # integers that a float32 has


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """One term of a loss: the numbers that it was divided by, and multiplied by, from the loss on.

    ``mean``: torch has divided by the last of them, the number of elements.
    """

    divided: tuple[Any, ...]
    multiplied: tuple[Any, ...]
    mean: bool = False

    def told(self, line: int = 0) -> LossTerm:
        """Return the product of the counts among them, and that of all other numbers. This reads from the device."""
        count = rest = 1.0
        counts = 0
        for number, power in (*((each, 1) for each in self.divided), *((each, -1) for each in self.multiplied)):
            value = float(number)
            if value.is_integer() and 1 <= value < EXACT:
                count *= value**power
                counts += value > 1
            else:
                rest *= value**power if value else 0.0
        return LossTerm(count, rest, mean=self.mean and counts <= 1, line=line)


def terms(loss: Any) -> list[Term]:
    """List the terms of a loss of which all numbers can be read; none of a loss that has more than ``MOST``."""
    first = getattr(loss, "grad_fn", None)
    waiting: list[tuple[Any, tuple[Any, ...], tuple[Any, ...]]] = [(first, (), ())] if first is not None else []
    found: list[Term] = []
    for _ in range(NODES if tells_hooks() else 0):
        if not waiting:
            break
        node, divided, multiplied = waiting.pop()
        name, onwards = node.name(), [each for each, _ in node.next_functions if each is not None]
        if name in PASSED:
            waiting += [(each, divided, multiplied) for each in reversed(onwards)]
        elif name in {"MulBackward0", "DivBackward0"} and len(onwards) == 1:
            number = _number(node, "other") if name == "DivBackward0" else _factor(node)
            if number is not None:
                more = ((*divided, number), multiplied) if name == "DivBackward0" else (divided, (*multiplied, number))
                waiting.append((onwards[0], *more))
        elif (term := _last(node, name, onwards, divided, multiplied)) is not None:
            found.append(term)
    return found if not waiting and len(found) <= MOST else []


def _last(
    node: Any, name: str, onwards: list[Any], divided: tuple[Any, ...], multiplied: tuple[Any, ...]
) -> Term | None:
    """Return the term that ends at a node; None where that is another operation than a loss, a sum or a mean."""
    if name == "SumBackward0":
        return Term(divided, multiplied)
    reduction = getattr(node, "_saved_reduction", 0)
    if name.startswith(LOSSES) and reduction == SUM:
        return Term(divided, multiplied)
    mean = name == "MeanBackward0" or reduction == MEAN
    count = _count(node, name, onwards, mean=mean)
    return Term((*divided, count), multiplied, mean) if count is not None else None


def _count(node: Any, name: str, onwards: list[Any], *, mean: bool) -> Any:
    """Return what the function at the end of a loss divides by; None where it is another one, or that is not known."""
    if name.startswith("NllLoss"):
        count = _number(node, "total_weight") if mean else 1
        return count if _is_none(node, "weight") else None
    if name == "MeanBackward0":
        count = getattr(node, "_saved_self_sym_numel", None)
        return count if type(count) is int else None
    return (_elements(onwards) or None) if name.startswith(LOSSES) and mean else None


def _elements(nodes: list[Any]) -> int:
    """Return how many elements the largest thing has that one of these nodes has computed."""
    shapes = [tuple(part.shape) for node in nodes for part in getattr(node, "_input_metadata", ())]
    return max((math.prod(each) for each in shapes if all(type(size) is int for size in each)), default=0)


def _factor(node: Any) -> Any:
    return _number(node, "self" if _is_none(node, "other") else "other")


def _is_none(node: Any, name: str) -> bool:
    try:
        return not is_packed(node, name) and getattr(node, f"_saved_{name}") is None
    except (AttributeError, RuntimeError):
        return False


def _number(node: Any, name: str) -> Any:
    """Return a number that a node has saved: a plain one, or a copy where it lies; None where it is none, or packed."""
    import torch

    try:
        if is_packed(node, name):
            return None
        number = getattr(node, f"_saved_{name}")
        if type(number) is not torch.Tensor or number.numel() != 1 or number.requires_grad:
            return None
        return float(number) if number.is_cpu else number.detach().clone()
    except (AttributeError, RuntimeError):  # freed, or changed since: torch says so itself
        return None
