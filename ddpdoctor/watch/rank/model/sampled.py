"""Which steps are compared."""

from __future__ import annotations

ALL = 3  # of the first steps


def is_sampled(step: int) -> bool:
    """Whether a step is compared: the first three, then 5, 7, 10, 20, 30, 50, 70, 100, ... : the same on each rank."""
    return step > 0 and next_sampled(step - 1) == step


def next_sampled(step: int) -> int:
    """Return the first step after this one that is compared."""
    if step < ALL:
        return step + 1
    power: int = 10 ** (len(str(step)) - 1)
    return next(each for each in (power, 2 * power, 3 * power, 5 * power, 7 * power, 10 * power) if each > step)
