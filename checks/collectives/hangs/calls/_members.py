"""Ranks that called an operation with a group that they are not in, where those who are wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.check import Doing, PassedOver

if TYPE_CHECKING:
    from ddpdoctor.check import Position, Stalled, Training


def passed_over(event: Stalled, training: Training) -> tuple[Position, tuple[int, ...]] | None:
    """Return a rank that waits at a line, and those that torch has passed over there, where all ranks came to it.

    A rank that did not come there at all would be the one that is waited for.
    """
    for position in event.doing(Doing.WAITING):
        if position.site is None:
            continue
        at = {each.rank for each in training.of(PassedOver, site=position.site) if each.rank is not None}
        there = {each.rank for each in event.doing(Doing.WAITING) if each.site == position.site}
        others = at - there
        if others and len(at | there) == event.world_size:
            return position, tuple(sorted(others))
    return None
