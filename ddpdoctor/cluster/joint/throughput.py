"""What the links between the hosts carry: each sends some others a few megabytes over gloo, and the kernel counts.

Only the time counts in which there was something to send and the receiver had room for it (tcp(7), TCP_INFO): a host
that is busy is not taken for a slow link. The links of one round are measured at the same time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from ddpdoctor.cluster.cluster import Throughput
from ddpdoctor.cluster.host import LONGEST, ProtocolError
from ddpdoctor.cluster.joint.jobs import count, join
from ddpdoctor.host.tcp import LinkUse, connections, used

DEADLINE = 40.0  # seconds of the job
TIMEOUT = 20.0  # seconds of one operation in it
LONG = 8.0  # seconds after which no further round begins
MOST_ROUNDS = 8
SIZE, TIMES, FEW = 1 << 19, 20, 5  # bytes that are sent, and how often; where one of them took ``SLOW`` on any link
SLOW = 0.1  # seconds
RESOLUTION = 4_000_000  # nanoseconds: how finely the kernel counts what a link needs
LARGEST = 1 << 62  # of a number that comes over the network

Row = list[list[Any]]


def measure(master: str, port: int, rank: int, world_size: int) -> Row:
    """Send some of the other hosts a few megabytes, in a rank; return to whom, and what the kernel counted of it."""
    join(master, port, rank, world_size, TIMEOUT)
    row, started = [], time.monotonic()
    for step in steps(world_size):
        if count(time.monotonic() - started > LONG):
            break
        target, source = (rank + step) % world_size, (rank - step) % world_size
        if use := _sent(target, source):
            row.append([target, *use])
    return row


def steps(world_size: int) -> list[int]:
    """Return how far from each host the one is that it sends to, in each round."""
    if world_size <= MOST_ROUNDS + 1:
        return list(range(1, world_size))
    return [1 << power for power in range((world_size - 1).bit_length())][:MOST_ROUNDS]


def _sent(target: int, source: int) -> LinkUse | None:
    """Send and receive at once, several times; return the fastest of them, None where the kernel does not count.

    A busy host makes some of them slow, and none of them faster than the link is.
    """
    found: list[LinkUse] = []
    left = TIMES
    while left:
        before = connections()
        started = time.monotonic()
        _exchange(target, source)
        slow = count(time.monotonic() - started > SLOW)  # and all have arrived, on all hosts
        found += used(before, connections())[:1]
        left = min(left - 1, FEW) if slow else left - 1
    best = max(found, key=lambda each: each.rate, default=None)
    return best and best._replace(busy=max(best.busy, RESOLUTION))


def _exchange(target: int, source: int) -> None:
    import torch
    import torch.distributed as dist

    coming = torch.empty(SIZE, dtype=torch.uint8)
    waits = [dist.isend(torch.zeros(SIZE, dtype=torch.uint8), target), dist.irecv(coming, source)]
    for each in waits:
        if each is not None:
            each.wait()


def row_from(data: object, source: int, hosts: int) -> Iterator[Throughput]:
    """Read what a host has measured.

    Raises:
        ProtocolError: it is nothing that a host measures.
    """
    if not isinstance(data, list) or len(data) > MOST_ROUNDS:
        raise ProtocolError("what links carry is a list")
    for each in data:
        if not isinstance(each, list) or len(each) != 1 + len(LinkUse._fields):
            raise ProtocolError("what a link carries has other parts")
        target, peer, interface, *numbers = each
        if not all(isinstance(text, str) and len(text) <= LONGEST for text in (peer, interface)):
            raise ProtocolError("a link has no such name")
        if not all(type(number) is int and 0 <= number < LARGEST for number in (target, *numbers)) or target >= hosts:
            raise ProtocolError("a link has no such number")
        yield Throughput(source, target, LinkUse(peer, interface, *numbers))
