"""Each pair of ranks, or of hosts: how long a small message takes there and back, and what the link carries."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddpdoctor.bench.spread import Spread, spread
from ddpdoctor.examine.tensors import device_of_group, gather_plain

if TYPE_CHECKING:
    from torch import Tensor

PINGS = 20
REPEATS = 4
PIECE = 1 << 18  # bytes of a message
SECONDS = 0.1  # that one direction is measured for, about
MOST_PIECES = 256
MOST = 64  # members: their pairs are measured one after another
FACTOR = 2.0  # how many times as slow the fastest measurement has to be as the slowest of the other links


@dataclass(frozen=True, slots=True)
class Link:
    """One direction between two members: seconds of a small message there and back, bytes a second from a to b."""

    a: int
    b: int
    latency: Spread
    bandwidth: Spread


@dataclass(frozen=True, slots=True)
class Pairs:
    """All links, and how the members are called; ``hosts``: each is a host of its own."""

    names: tuple[str, ...]
    links: tuple[Link, ...]
    hosts: bool = False

    def of(self, a: int, b: int) -> Link | None:
        """Return the link from a member to another."""
        return next((each for each in self.links if (each.a, each.b) == (a, b)), None)


@dataclass(frozen=True, slots=True)
class Suspect:
    """A member whose links are all slower than all others: of what it sends, what it receives, or of both."""

    member: int
    what: str
    slow: Spread
    others: Spread


def measure_pairs(members: Sequence[int]) -> list[tuple[int, int, list[float], list[float]]]:
    """Return for each ordered pair of these ranks its latencies (seconds) and its bandwidths (bytes a second).

    All ranks call it; what each has measured is gathered on all.
    """
    import torch.distributed as dist

    mine: list[tuple[int, int, list[float], list[float]]] = []
    for at, a in enumerate(members):
        for b in members[at + 1 :]:
            dist.barrier()
            if dist.get_rank() in (a, b):
                mine += _pair(a, b)
    return [(a, b, pings, carried) for found in gather_plain(mine) for a, b, pings, carried in found]


def _pair(a: int, b: int) -> list[tuple[int, int, list[float], list[float]]]:
    """Measure a pair: both of them call it, each tells of what it has received."""
    import torch
    import torch.distributed as dist

    rank = dist.get_rank()
    other = b if rank == a else a
    device = device_of_group()
    token, piece = torch.zeros(1, device=device), torch.zeros(PIECE // 4, device=device)
    _there_and_back(token, other, first=rank == a)
    pings = [_there_and_back(token, other, first=rank == a) for _ in range(PINGS)]
    found = []
    for source in (a, b):
        _carry(piece, token, other, 1, sends=rank == source)
        once = _carry(piece, token, other, 1, sends=rank == source)
        count = torch.tensor([min(MOST_PIECES, max(1, int(SECONDS / REPEATS / once)))], device=device)
        dist.send(count, other) if rank == source else dist.recv(count, other)
        pieces = int(count)
        times = [_carry(piece, token, other, pieces, sends=rank == source) for _ in range(REPEATS)]
        if rank == source:
            found.append((rank, other, pings[PINGS // 4 :], [pieces * PIECE / each for each in times]))
    return found


def _there_and_back(token: Tensor, other: int, *, first: bool) -> float:
    import torch.distributed as dist

    started = time.perf_counter()
    for sends in (first, not first):
        dist.send(token, other) if sends else dist.recv(token, other)
    token.cpu()
    return time.perf_counter() - started


def _carry(piece: Tensor, token: Tensor, other: int, count: int, *, sends: bool) -> float:
    """Send so many pieces; return the seconds until the other side has told that all are there."""
    import torch.distributed as dist

    started = time.perf_counter()
    for _ in range(count):
        dist.send(piece, other) if sends else dist.recv(piece, other)
    dist.recv(token, other) if sends else dist.send(token, other)
    token.cpu()
    return max(1e-9, time.perf_counter() - started)


def as_pairs(names: Sequence[str], members: Sequence[int], found: Iterable[Any], *, hosts: bool = False) -> Pairs:
    """Return what was measured, by the members' places."""
    place = {rank: at for at, rank in enumerate(members)}
    links = [Link(place[a], place[b], spread(latency), spread(carried)) for a, b, latency, carried in found]
    return Pairs(tuple(names), tuple(sorted(links, key=lambda each: (each.a, each.b))), hosts)


def suspects(pairs: Pairs) -> list[Suspect]:
    """Return the members whose every link is slower than every link of the others; the worst first, at most one."""
    found = []
    for member in range(len(pairs.names)):
        for what, touches in (
            ("sends", lambda link, member=member: link.a == member),
            ("receives", lambda link, member=member: link.b == member),
            ("sends and receives", lambda link, member=member: member in (link.a, link.b)),
        ):
            slow = [each.bandwidth for each in pairs.links if touches(each)]
            others = [each.bandwidth for each in pairs.links if not touches(each)]
            if slow and others and FACTOR * max(each.high for each in slow) < min(each.low for each in others):
                found.append(Suspect(member, what, _over(slow), _over(others)))
    return sorted(found, key=lambda each: each.slow.middle / each.others.middle)[:1]


def _over(spreads: Sequence[Spread]) -> Spread:
    middles = sorted(each.middle for each in spreads)
    return Spread(min(each.low for each in spreads), middles[len(middles) // 2], max(each.high for each in spreads))
