"""What a process tells of itself: that it began, joined, left, failed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ddpdoctor.watch.events.base import Communication, Event, Site

INTERRUPTED = "KeyboardInterrupt"
"""By what Ctrl-C, or SIGINT, ends a process, as Left has it."""

LOST = re.compile(r"[Cc]onnection (?:closed|reset)|Broken pipe|remote process exited")
"""In an error that says that another rank is gone: the launcher ends this one in a moment, so it is not held up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Event):
    """A process has imported torch that was told a rank, or that calls init_process_group.

    ``launch`` is what it has in common with the ranks that were started with it, and with no others: where they meet,
    the launcher's run and attempt; empty where no launcher has told it a rank. ``world_size`` is what that told it.
    """

    program: str
    launch: str = ""
    world_size: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining(Event):
    """A rank enters init_process_group; Joined follows when it returns.

    ``address`` is where it meets the others; ``local_size`` how many ranks the launcher started on this host, None
    where it says nothing of that; ``launched`` how many it started in all. ``store_port`` is the port of the store that
    torchrun has opened for its ranks, which open none then; empty where it has opened none. ``store_written`` is when
    the file of a ``file://`` store was last written before, in seconds since the epoch; 0 where it is new or empty.
    ``spawned`` is how many processes the mp.spawn has started that has started this one. ``above`` are the processes
    that this one descends from, its parent first; empty where the system does not tell.
    """

    world_size: int
    backend: str
    address: str = ""
    local_size: int | None = None
    launched: int | None = None
    store_port: str = ""
    store_written: float = 0.0
    spawned: int | None = None
    above: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined(Event):
    """A rank has its default process group."""

    world_size: int
    backend: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildLockLeft(Event):
    """A process waits for the lock of an extension's build, of this age in seconds, that no process holds."""

    path: str
    age: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Left(Event):
    """A rank has called destroy_process_group, or its interpreter ends; ``models`` are wrapped ones that are there.

    ``by`` is what ended it before the end of its script: ``sys.exit(0)``, ``os._exit(0)``, ``KeyboardInterrupt``; its
    line is ``site``. ``handled`` is the exception in whose handler it did so, with the line that raised it.
    """

    ended: bool
    models: int = 0
    by: str = ""
    handled: str = ""


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
class JoinEntered(Event):
    """A rank has entered torch's Join, or a wrapped model's ``join()``, for the first time.

    ``group`` are the global ranks that it answers.
    """

    group: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMade(Event):
    """The user's own code has called new_group; ``ranks`` are those it is made of, in words."""

    ranks: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingSpawned(Event):
    """torch.multiprocessing was told to start no process at all: it returns at once."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(Event):
    """The command has ended, with this exit status: what is known now is all there is."""

    status: int
