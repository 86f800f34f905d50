"""Where each rank is while nothing moves."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.watch.events.base import Communication, Event, Site

if TYPE_CHECKING:
    from ddpdoctor.host.process.connections import Peer
    from ddpdoctor.host.process.waits.wait import Awaited

JOINING = "init_process_group"
"""``Position.operation`` of a rank that joins its process group."""
INIT_RPC = "rpc.init_rpc"
"""The same of one that joins the workers of torch.distributed.rpc."""
JOINS = frozenset({JOINING, INIT_RPC})


@dataclass(frozen=True, slots=True)
class Pending:
    """A collective that torch's flight recorder holds as not complete; ``number`` counts those of the group."""

    operation: str
    group: str
    number: int
    shapes: str

    def __str__(self) -> str:
        """Name it as torch's own reports do."""
        return f"{self.operation}{f' of {self.shapes}' if self.shapes else ''}, number {self.number} of its group"


@dataclass(frozen=True, slots=True)
class Worker:
    """A process that a rank has started, such as a data loader's, that stands still, and what it awaits.

    ``site`` is the line, None where nothing is known of that; ``operation`` is the communication that it is in, where
    it is a copy of the rank, made by a fork.
    """

    pid: int
    site: Site | None
    awaited: Awaited | None = None
    operation: str = ""


class UnderWay(NamedTuple):
    """An exception under way: its class, and the user's line that it came to, of a handler or of a ``with``."""

    error: str
    site: Site


class Doing(enum.Enum):
    """What a rank does while others wait.

    ASKING is one that does not compute and comes to run all the same, for a download or a file that may come; of one
    that is RESTING it is open whether it stands still.
    """

    WAITING = "waiting"
    WORKING = "working"
    ASKING = "asking again and again"
    RESTING = "at rest"
    STANDING = "standing still"
    STOPPED = "stopped by a signal"
    FAILED = "failed"
    ENDED = "ended"
    DIED = "died"


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a rank is, seen from outside while nothing moves.

    ``site`` is the user's line, ``operation`` the communication it waits in (``backward`` where DDP averages
    gradients), ``function`` the function of a library that the line is inside of (``subprocess._try_wait``).
    ``batches``, ``forwards`` (of wrapped models) and ``steps`` (of optimizers) are counted from the start; ``recent``
    are the last communications that it began, oldest first; ``pending`` what torch's flight recorder holds as not
    complete. ``stack`` are the lines of the user's code, innermost first.
    ``seconds``: since its counters last moved, or since it is gone. ``counters`` are what counts the loops around
    these lines, as ``train.epoch``; ``workers`` are processes that the rank has started and that stand still as it
    does; ``threads`` are its other threads in the user's code, by name, None where it was not asked for them.
    Counters are known only where a process was looked into from outside, and so are ``raised``, an exception that is
    under way, and ``caught``: of handlers that count, their line and how often. ``awaited`` is what one that stands
    waits for.
    """

    rank: int
    pid: int
    doing: Doing
    seconds: float
    batches: int = 0
    forwards: int = 0
    steps: int = 0
    site: Site | None = None
    operation: str = ""
    function: str = ""
    recent: tuple[Communication, ...] = ()
    pending: tuple[Pending, ...] = ()
    stack: tuple[Site, ...] = ()
    counters: tuple[tuple[str, int], ...] = ()
    workers: tuple[Worker, ...] = ()
    threads: tuple[tuple[str, Site], ...] | None = None
    awaited: Awaited | None = None
    raised: UnderWay | None = None
    caught: tuple[tuple[Site, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Sibling:
    """A process around the ranks, of the same interpreter, that has told nothing: a rank on its way, or none.

    ``launcher``: it is torchrun, or has called mp.spawn, so that it is none.
    """

    pid: int
    busy: bool
    launcher: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalled(Event):
    """Made by the monitor: a rank has waited for others longer than --hang-after. All ranks that are known, by rank.

    ``siblings`` are looked for where fewer ranks are known than the world has. ``outside``: the ranks were never
    watched, only looked at from outside, so that nothing is known of their steps and of what they called before.
    ``peers`` are the other ends of their connections. ``on_loopback``: why gloo tells the ranks of other hosts to come
    to a loopback address, where ranks of this host wait for them in init_process_group; empty where it does not.
    ``apart``: none of these ranks waits for others, all stand still, and those of other hosts are not seen.
    ``unresolved``: the name at which these ranks are to meet, and why this host cannot look it up; empty where it can.
    """

    ranks: tuple[Position, ...]
    world_size: int
    siblings: tuple[Sibling, ...] = ()
    outside: bool = False
    peers: tuple[Peer, ...] = ()
    on_loopback: str = ""
    unresolved: tuple[str, str] | tuple[()] = ()
    apart: bool = False

    @property
    def silent(self) -> tuple[Peer, ...]:
        """The hosts that do not answer any more, those first that this host cannot reach.

        One to which no connection came about counts where a rank waits in init_process_group, and tries the others.
        """
        joins = any(each.doing is Doing.WAITING and each.operation in JOINS for each in self.ranks)
        found = (each for each in self.peers if each.silent and (joins or not each.connecting))
        return tuple(sorted(found, key=lambda each: not each.down))

    def doing(self, *doings: Doing) -> tuple[Position, ...]:
        """Return the ranks that do one of these."""
        return tuple(position for position in self.ranks if position.doing in doings)


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where a rank was at one moment: the user's line, the communication it was in, if any, a library's function."""

    rank: int
    pid: int
    site: Site | None
    operation: str
    function: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOut(Event):
    """Made by the monitor: the wait of a rank, whose process this is, has run out; where the others were then.

    ``groups`` are the process groups of its last communications that Python has begun.
    """

    ranks: tuple[Whereabouts, ...]
    groups: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherWaits(Event):
    """Made by the monitor: a ``launcher`` of so many nodes, at least, has run so long and started no rank.

    ``node`` is this one's number where it was given one. The nodes meet at ``host``, whose name leads to ``addresses``
    here, and ``port``. ``answer``: ``own`` or ``loopback`` where that is this host, ``unknown name``, or how a
    connection went (``open``, ``refused``, ``filtered``, ``unreachable``); empty where they do not meet at a
    port. ``holder`` is another program that has the port here. ``line`` describes this host for those who read the
    logs of all. ``again``: it has had ranks, which have ended, and ``seconds`` are those since, 0 where that is not
    known.
    """

    nodes: int
    seconds: float
    node: int | None = None
    host: str = ""
    port: int = 0
    addresses: tuple[str, ...] = ()
    answer: str = ""
    holder: str = ""
    line: str = ""
    launcher: str = "torchrun"
    again: bool = False
