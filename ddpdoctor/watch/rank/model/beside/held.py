"""What was held when it was looked at: numbers, tensors and generators, by where they are."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.events.steps.parts import BEST

if TYPE_CHECKING:
    from ddpdoctor.watch.events import HeldGenerator


LISTED = 16  # numbers of a list, or of a dict


HOLDINGS = 100


NAME = re.compile(r"[^\W\d]\w*")


@dataclass(slots=True)
class Tensor:
    """One tensor that an object holds: where it is from the function that trains, its class, its fold.

    The class of what a variable holds by itself is empty.
    """

    path: str
    kind: str
    file: str
    shape: tuple[int, ...]
    broadcast: bool
    named: bool
    fold: Any

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)


@dataclass(slots=True)
class State:
    """Numbers by where they are, ``rates`` of dropout, and tensors."""

    numbers: dict[str, float] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    tensors: list[Tensor] = field(default_factory=list)
    generators: list[HeldGenerator] = field(default_factory=list)

    def paths(self, value: float) -> tuple[str, ...]:
        """Return where a number is held, the first few places."""
        return tuple(path for path, each in self.numbers.items() if each == value)[:LISTED]

    def named(self, names: set[str]) -> list[tuple[str, float]]:
        """Return the numbers that are held by one of these names, or as the best so far, the first few."""
        found = []
        for path, value in self.numbers.items():
            meant = NAME.findall(path)[-2 if path.endswith("]") else -1 :]  # a key, and what it is a key of
            if names & set(meant) or BEST.search(meant[-1]):
                found.append((path, value))
        return found[:HOLDINGS]
