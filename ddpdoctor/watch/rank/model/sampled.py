"""Which steps are compared."""

from __future__ import annotations


def is_sampled(step: int) -> bool:
    """Whether a step is compared: the first three, then 10, 30, 100, 300, ... : the same on each rank."""
    text = str(step)
    return step <= 3 or (text[0] in "13" and not text[1:].strip("0"))  # noqa: PLR2004 - as said
