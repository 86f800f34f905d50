"""Ranks whose work is done, and that do not end."""

from __future__ import annotations

from dataclasses import dataclass

from ddpdoctor.watch.events.base import Event, Site


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAtEnd(Event):
    """Made by the monitor: a rank waits for threads of its own, and they for what nobody of the process does any more.

    ``site`` is the line of the first of so many ``threads``; ``joined`` where the main thread waits for them in the
    script, empty at the interpreter's end. ``feeds``: the thread is that of a queue of multiprocessing, and writes to a
    pipe that is full.
    """

    threads: int
    joined: str
    seconds: float
    feeds: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldAtEnd(Event):
    """Made by the monitor: a rank has given up its process group, and its main thread neither goes on nor ends.

    It keeps the GIL in native code, and a thread of gloo waits for that. ``site`` is where the main thread is,
    ``destroyed`` the call of destroy_process_group, ``models`` how many wrapped models there were then.
    """

    models: int
    destroyed: Site | None
    seconds: float

    @property
    def in_call(self) -> bool:
        """Whether destroy_process_group itself has not returned."""
        return self.site is not None and self.site == self.destroyed
