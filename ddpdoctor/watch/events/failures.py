"""What processes fail of: exceptions, signals, and the loss of other ranks."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ddpdoctor.watch.events.base import Communication, Event, Site

LOST = re.compile(r"[Cc]onnection (?:closed|reset)|Broken pipe|remote process exited")
"""In an error that says that another rank is gone: the launcher ends this one in a moment, so it is not held up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadFailed(Event):
    """An exception has ended a thread of a rank, and not the rank; ``said`` is its type and text, in a line."""

    thread: str
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashed(Event):
    """Made by the monitor: a process is gone, and native code had it end by a signal, called at the line ``site``.

    ``said`` is what faulthandler calls it, as "Segmentation fault"; ``stack`` is that of the thread, innermost
    first; ``stack[0]`` is the function that called into native code.
    """

    said: str
    stack: tuple[Site, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(Event):
    """An exception is about to leave a process: its type and its traceback as printed.

    The rest is what the process knows and its traceback does not tell: ``parameters`` names those of the wrapped model
    as DDP numbers them, ``unused`` those that got no gradient where DDP complains of that, ``changed`` says of those
    that were frozen or replaced since DDP wrapped the model which of the two it was; ``path`` is the file that the
    state dict was read from; ``seen`` are facts about its surroundings, each with where it was seen; ``within`` is the
    process that has started this one, and is in a group as the same rank: 0 where there is none.
    """

    error: str
    text: str
    unused: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    path: str = ""
    seen: tuple[tuple[str, str], ...] = ()
    within: int = 0

    @property
    def said(self) -> str:
        """The line of the traceback that says what is wrong."""
        lines = self.text.strip().splitlines() or [""]
        return next((line.strip() for line in reversed(lines) if line.startswith(self.error)), lines[-1].strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a rank came: forwards of wrapped models, its last communications, oldest first; whether it has ended.

    ``steps`` are those of optimizers.
    """

    rank: int
    forwards: int
    recent: tuple[Communication, ...]
    ended: bool = False
    steps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLost(Event):
    """Made where failures are explained: ranks say only that another one is gone, or all are gone without a word.

    ``first`` is the failure of the rank that is gone, for which no check speaks; None where it left none. ``others``
    are those that followed; ``gone`` are the ranks whose process is no more and told nothing, ``ended`` those whose
    program came to its end. ``progress`` is how far each rank came, where that is known. ``stack`` are the lines of the
    user's code that the first of ``others`` failed in, innermost first.
    """

    first: Failed | None
    others: tuple[Failed, ...]
    gone: tuple[int, ...] = ()
    ended: tuple[int, ...] = ()
    progress: tuple[Progress, ...] = ()
    stack: tuple[Site, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedAlone(Event):
    """Made at the end of the command: one rank has failed of what no check knows, and no other rank has failed.

    ``gone`` are the ranks whose process is no more and told nothing, as the launcher ends them; ``ended`` those whose
    program came to its end.
    """

    first: Failed
    gone: tuple[int, ...] = ()
    ended: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorSeen(Event):
    """An exception that torch, or a loader, raised into the user's code; whether it was caught is not known yet.

    ``forwards`` are those that the rank had made then. ``handled``: the rank communicates while it handles it, or while
    it is on its way through a `finally`; it can be one of the user's own. ``shown``: one of the user's own that the
    script has printed, as one does that was caught; what it led to is seen by what the rank does next alone.
    """

    error: str
    text: str
    forwards: int
    handled: bool = False
    shown: bool = False
