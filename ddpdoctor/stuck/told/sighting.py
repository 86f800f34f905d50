"""What was seen of a training on a host, or on several: as one writes it down, reads it again and puts it together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ddpdoctor.facets import BadTarget
from ddpdoctor.watch.events import Joined, Joining, Position, Stalled
from ddpdoctor.watch.events.hang import JOINS
from ddpdoctor.watch.training import Training

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddpdoctor.host.process.connections import Peer
    from ddpdoctor.stuck.looks.gpus import Use

OWN_NUMBER = "a node rank of its own (torchrun --node_rank, NODE_RANK; RANK where set by hand)"
TOGETHER = "where they should be one, torchrun is to be told --nnodes and one --rdzv_endpoint on all hosts"
APART = 60.0  # seconds between the looks at several hosts, from which on the reader is told


@dataclass(frozen=True, slots=True)
class Sighted:
    """A rank: where it is and on which host; ``local_size`` is 0 where nothing was said of it.

    ``backends`` are those of its process groups; ``moved`` says how far its loops came while it was looked at; ``use``
    is what its GPU does, where it has one to itself.
    """

    position: Position
    host: str
    backends: tuple[str, ...] = ()
    local_size: int = 0
    moved: str = ""
    use: Use | None = None

    @property
    def came(self) -> bool:
        """Whether it has come to init_process_group, as far as can be seen."""
        return bool(self.backends or self.position.operation)


@dataclass(frozen=True, slots=True)
class Sighting:
    """All ranks that were seen, in their order; ``at`` is when that was, in seconds since the epoch.

    ``address`` is where they meet, ``run`` the launcher's name of this start; both are empty where unknown. ``peers``
    are the other ends of the ranks' connections.
    """

    ranks: tuple[Sighted, ...]
    world_size: int
    address: str
    run: str
    at: float
    peers: tuple[Peer, ...] = ()

    @property
    def positions(self) -> tuple[Position, ...]:
        """Where they are."""
        return tuple(each.position for each in self.ranks)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that were looked at, in the order of their first rank."""
        return tuple(dict.fromkeys(each.host for each in self.ranks))

    def stalled(self) -> Stalled:
        """Return the event that the watch's checks of hangs are shown."""
        return Stalled(
            pid=0, time=self.at, ranks=self.positions, world_size=self.world_size, outside=True, peers=self.peers
        )

    def told(self) -> Training:
        """Return what the ranks would have told a watch: which have come to their process group, and where."""
        training = Training()
        for each in self.ranks:
            if each.came:
                self._tell(training, each)
        return training

    def _tell(self, training: Training, each: Sighted) -> None:
        position, backend = each.position, next(iter(each.backends), "")
        training.add(
            Joining(
                pid=position.pid, time=self.at, rank=position.rank, site=position.site, world_size=self.world_size,
                backend=backend, address=self.address, local_size=each.local_size or None,
            )
        )  # fmt: skip
        if position.operation not in JOINS:
            training.add(
                Joined(
                    pid=position.pid, time=self.at, rank=position.rank, world_size=self.world_size, backend=backend
                )
            )  # fmt: skip


def merged(named: Sequence[tuple[str, Sighting]]) -> Sighting:
    """Put together what was seen on several hosts.

    Raises:
        BadTarget: they are of different trainings, or two of them have the same rank.
    """
    (first_name, first), *others = named
    for name, other in others:
        for what, one, two in (
            ("WORLD_SIZE", first.world_size, other.world_size),
            ("MASTER_PORT", first.address.rpartition(":")[2], other.address.rpartition(":")[2]),
            ("the launcher's run", _named(first.run), _named(other.run)),
        ):
            if one != two:
                whole = all(len(each.ranks) == each.world_size for _, each in named)
                raise BadTarget(
                    f"{first_name} and {name} tell of different trainings: {what} is {one} and {two}"
                    + (f"; each has all of its ranks on one host: {TOGETHER}" if whole else "")
                )
    owners: dict[int, tuple[str, str]] = {}
    for name, each in named:
        for member in each.ranks:
            rank = member.position.rank
            before, host = owners.setdefault(rank, (name, member.host))
            if before != name:
                raise BadTarget(
                    f"rank {rank} is in {before} and in {name}: two processes are one rank"
                    + (f", on {host} and on {member.host}: each host needs {OWN_NUMBER}" if host != member.host else "")
                )
    ranks = sorted((rank for _, each in named for rank in each.ranks), key=lambda each: each.position.rank)
    peers = tuple(peer for _, each in named for peer in each.peers)
    return replace(first, ranks=tuple(ranks), at=max(each.at for _, each in named), peers=peers)


def _named(run: str) -> str:
    """Return a run's name; none where it is a process of its host that has spawned the ranks."""
    return "" if run.startswith("PID ") else run


def apart(times: Sequence[float]) -> str:
    """Return a line where the looks at several hosts lie far apart; empty where they do not."""
    if max(times) - min(times) < APART:
        return ""
    return f"these hosts were looked at {max(times) - min(times):.0f} s apart: what moved meanwhile is not seen"
