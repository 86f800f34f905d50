"""What a process tells of itself: that it began, joined, left."""

from __future__ import annotations

from dataclasses import dataclass

from ddpdoctor.watch.events.base import Event

RPC = "rpc"
"""The backend, as Joining and Joined have it, of a rank that torch.distributed.rpc has joined, and no process group."""
INTERRUPTED = "KeyboardInterrupt"
"""By what Ctrl-C, or SIGINT, ends a process, as Left has it."""


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
    """A rank enters init_process_group, or init_rpc without one; Joined follows when it returns.

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
class WatchFailed(Event):
    """A part of the watch has failed in this process, which is a fault of ddpdoctor: told of the first time."""

    part: str
    said: str


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
class Ended(Event):
    """The command has ended, with this exit status: what is known now is all there is."""

    status: int
