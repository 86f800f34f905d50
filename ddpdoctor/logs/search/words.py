"""Which of thousands of literals a text holds, without a search for each of them.

A text is cut into steps of four bytes. Wherever a literal stands in it, some of these steps lie wholly within the
literal; which ones depends only on where the first of them begins, at one of the literal's first four bytes. So the set
of the text's steps tells at once which few literals are worth a search.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

STEP = 4
SHORTEST = 2 * STEP - 1  # bytes: a shorter literal can stand where no step lies within it


@dataclass(frozen=True, slots=True)
class Placed:
    """A literal at one of its four places among the steps; ``rest`` are the steps within it behind the first."""

    literal: bytes
    rest: frozenset[int]


class LiteralIndex:
    """Literals, found by the steps within them."""

    def __init__(self, literals: Iterable[bytes]) -> None:
        """Take the literals."""
        self._by_step: dict[int, list[Placed]] = {}
        self._short: list[bytes] = []
        for literal in dict.fromkeys(literals):
            if len(literal) < SHORTEST:
                self._short.append(literal)
                continue
            for begin in range(STEP):
                first, *rest = _steps(literal[begin : len(literal) - (len(literal) - begin) % STEP])
                self._by_step.setdefault(first, []).append(Placed(literal, frozenset(rest)))

    def within(self, text: bytes) -> list[bytes]:
        """Return the literals that the text holds."""
        steps = set(_steps(text + bytes(-len(text) % STEP)))
        likely = {
            placed.literal
            for step in steps & self._by_step.keys()
            for placed in self._by_step[step]
            if placed.rest <= steps
        }
        return [literal for literal in (*likely, *self._short) if literal in text]


def _steps(text: bytes) -> list[int]:
    return memoryview(text).cast("I").tolist()
