"""Numbers of optimizers on their way from the ranks to the monitor: a rank can have others beside those of all."""

from __future__ import annotations

from typing import NamedTuple

OF_LINES = {"optimizer"}
"""Kinds of which a rank can have one that no other has, and before it: a teacher that rank 0 trains by itself."""
BITS = 12


class Number(NamedTuple):
    """The number of an object on its rank, and what is the same on all: a line, and how many it has made before."""

    own: int
    line: int
    of_line: int


def with_line(own: int, line: int, of_line: int) -> int:
    """Return one number that says all of it; numbers too large for that are taken for the last of their kind."""
    most: int = (1 << BITS) - 1
    return ((line << BITS) | min(of_line, most)) << BITS | min(own, most)


def taken_apart(number: int) -> Number | None:
    """Return what a number says; None where it says no line."""
    most: int = (1 << BITS) - 1
    rest, own = number >> BITS, number & most
    return Number(own, rest >> BITS, rest & most) if rest >> BITS else None
