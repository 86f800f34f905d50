"""The optimizers of all ranks by small numbers: the same one is known by one number, whatever others a rank has."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from ddpdoctor.watch.events.numbered import taken_apart

if TYPE_CHECKING:
    from ddpdoctor.watch.events import Event

AnyEvent = TypeVar("AnyEvent", bound="Event")


@dataclass(slots=True)
class Optimizers:
    """Small numbers by the line that makes an optimizer, and by how many it has made before."""

    known: dict[tuple[int, int], int] = field(default_factory=dict)

    def numbered(self, event: AnyEvent) -> AnyEvent:
        """Return an event with the small number of the optimizer that it tells of, if it tells of one.

        That is the one that the rank itself has given it, in the order in which it was made, where it is free.
        """
        told = getattr(event, "optimizer", None)
        parts = taken_apart(told) if type(told) is int else None
        if parts is None:
            return event
        key = parts.line, parts.of_line
        if key not in self.known:
            taken = set(self.known.values())
            self.known[key] = next(number for number in itertools.count(parts.own) if number not in taken)
        return replace(event, optimizer=self.known[key])  # type: ignore[call-arg]  # it has one
