"""The TCP connections of this process to other hosts: what went over them, and for how long they had something to send.

The kernel counts that by itself for each connection; reading it costs a system call.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
import sys
from collections.abc import Iterator
from typing import NamedTuple

TCP_INFO = 11  # linux/tcp.h, as the places of the fields
ROUND_TRIP, RESENT, ACKED, LEAST_ROUND_TRIP, BUSY = 68, 100, 120, 148, 168
SIZE = 192
LOOPBACK = "127."
MAPPED = "::ffff:"  # begins an address of IPv4 in a socket of IPv6
MICROSECOND = 1_000
UNKNOWN = 65_535  # megabits a second, as drivers say that do not know: -1 of 16 bits
FEW = 1 << 16  # bytes: a connection that carried less is none of the collectives


class LinkUse(NamedTuple):
    """What a process has sent to another host over TCP while that was looked at: ``sent`` bytes.

    ``busy`` are the nanoseconds in which the kernel had something to send there or to be confirmed, and the receiver
    had room for it. ``interface`` says that it carries ``speed`` megabits a second, 0 if it does not. ``round_trip``:
    nanoseconds, the shortest. ``resent`` are packets that went twice.
    """

    peer: str
    interface: str
    speed: int
    sent: int
    busy: int
    resent: int
    round_trip: int

    @property
    def rate(self) -> float:
        """Bytes a second, while there was something to send."""
        return 1e9 * self.sent / max(1, self.busy)


class Counted(NamedTuple):
    """What a connection has done since it was made: ``busy`` and the others are nanoseconds.

    ``busy`` is the time in which it had something to send or to be confirmed, without that in which the receiver had no
    room: it did not read then.
    """

    local: str
    peer: str
    acked: int
    busy: int
    resent: int
    round_trip: int


Connections = dict[tuple[int, int], Counted]


def connections() -> Connections:
    """Return the connections to other hosts, each by its descriptor and local port."""
    return dict(_connections(own_addresses())) if sys.platform == "linux" else {}


def own_addresses() -> frozenset[str]:
    """Return the addresses of this host: what is sent to one of them crosses no link."""
    import psutil

    return frozenset(each.address.partition("%")[0] for several in psutil.net_if_addrs().values() for each in several)


def _connections(own: frozenset[str]) -> Iterator[tuple[tuple[int, int], Counted]]:
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - it is read in a training
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as each:
                if (found := _counted(each, own)) is not None:
                    yield (int(name), each.getsockname()[1]), found
        except OSError:  # closed meanwhile, or not connected
            continue


def _counted(connection: socket.socket, own: frozenset[str]) -> Counted | None:
    if connection.family not in {socket.AF_INET, socket.AF_INET6} or connection.type != socket.SOCK_STREAM:
        return None
    local, peer = connection.getsockname()[0], connection.getpeername()[0]
    if peer.removeprefix(MAPPED) in own or peer.removeprefix(MAPPED).startswith(LOOPBACK):
        return None
    info = connection.getsockopt(socket.IPPROTO_TCP, TCP_INFO, SIZE)
    if len(info) < SIZE:  # a kernel before 4.10
        return None
    (usual,), (resent,), (least,) = (
        struct.unpack_from("=I", info, at) for at in (ROUND_TRIP, RESENT, LEAST_ROUND_TRIP)
    )
    (acked,) = struct.unpack_from("=Q", info, ACKED)
    busy, no_room = struct.unpack_from("=QQ", info, BUSY)
    return Counted(local, peer, acked, MICROSECOND * (busy - no_room), resent, MICROSECOND * (least or usual))


def used(before: Connections, after: Connections) -> tuple[LinkUse, ...]:
    """Return what each other host was sent in between, of those that were sent more than a little: the most first."""
    by_peer: dict[tuple[str, str], list[tuple[Counted, int, int, int]]] = {}
    for key, now in after.items():
        old = before.get(key)
        if old is None or (old.local, old.peer) != (now.local, now.peer):
            old = now._replace(acked=0, busy=0, resent=0)
        sent, busy, resent = now.acked - old.acked, now.busy - old.busy, now.resent - old.resent
        if sent >= FEW:
            by_peer.setdefault((now.local, now.peer), []).append((now, sent, busy, resent))
    found = [
        LinkUse(
            peer,
            *_interface(local),
            sent=sum(each[1] for each in several),
            busy=max(each[2] for each in several),
            resent=sum(each[3] for each in several),
            round_trip=min(each[0].round_trip for each in several),
        )
        for (local, peer), several in by_peer.items()
    ]
    return tuple(sorted(found, key=lambda each: -each.busy))


def _interface(address: str) -> tuple[str, int]:
    """Return the interface that has an address, and the megabits a second that it says it carries; 0 if it does not."""
    import psutil

    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address.partition("%")[0] == address.removeprefix(MAPPED) for each in addresses):
            stats = psutil.net_if_stats().get(name)
            return name, max(0, stats.speed) if stats is not None and stats.speed < UNKNOWN else 0
    return "", 0
