"""A few of many ranks, so chosen that the one that differs is among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
MOST = 4  # ranks that a finding shows


def few(items: Iterable[Item], kind: Callable[[Item], object], most: int = MOST) -> tuple[Item, ...]:
    """Return the first items, where all are shown; else one of each kind, the rarest kinds first, then more of them."""
    every = list(items)
    if len(every) <= most:
        return tuple(every)
    kinds: dict[object, list[Item]] = {}
    for item in every:
        kinds.setdefault(kind(item), []).append(item)
    alike = sorted(kinds.values(), key=len)
    return tuple([*(each[0] for each in alike), *(item for each in alike for item in each[1:])][:most])
