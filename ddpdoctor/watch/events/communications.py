"""What is wrong with how a rank communicates, as its calls show it."""

from __future__ import annotations

from dataclasses import dataclass

from ddpdoctor.watch.events.base import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedInFork(Event):
    """A process that the rank has forked communicates through a group that the rank has made.

    ``child`` is that process, ``worker`` whether it is one of a loader, ``backend`` the group's.
    """

    operation: str
    backend: str
    child: int
    worker: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver(Event):
    """A rank has called an operation of a group that it is no member of: torch warns, and does nothing; once a line."""

    operation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherAliased(Event):
    """A line gathers into a list of so many ``places`` of which several are one tensor, for the second time."""

    operation: str
    places: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncWorkDropped(Event):
    """A line has dropped the handle of an asynchronous collective so many times, without ever having used it."""

    operation: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientsInFlight(Event):
    """Steps, ``count`` of them, were given gradients that collectives write to for which nobody has waited.

    ``parameters`` of the last one's are so; ``site`` began one of the collectives, ``file`` and ``line`` step.
    """

    operation: str
    parameters: int
    count: int
    file: str = ""
    line: int = 0
