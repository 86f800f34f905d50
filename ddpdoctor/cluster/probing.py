"""One host tries another's data port, and asks the kernel there, not the process: what it acknowledges has arrived.

A process that waits for its turn on a busy machine acknowledges nothing; its kernel does at once. So lost is told from
slow: bytes that stay unacknowledged while the kernel sends them again and again are lost (tcp(7), SIOCOUTQ, TCP_INFO).

A path that loses some packets delivers all in the end. Where the kernel has sent two or more again, pairs of small
segments follow, each after the one before it has arrived: what is lost there was dropped by no queue that a burst has
filled. What the peer reports to have twice (RFC 2883) was late, as on a busy host, and is not counted.
"""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
import sys
import termios
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ddpdoctor.cluster.wire.client import ending
from ddpdoctor.cluster.wire.protocol import MSS

OK, LARGE_LOST, LOST, LOOPBACK, UNTRIED = "ok", "large packets lost", "data lost", "its own loopback", "not tried"
SOME_LOST = "loses packets"
CONNECT = 4.0  # seconds: the first packet is sent at once, after one, and after three
DRAIN = 8.0  # seconds until all must have been acknowledged, where no packet is known to be lost
TIMES = 4  # that a packet is sent again before it counts as lost: three seconds
SMALL, LARGE = 4 << 10, 32 << 10  # bytes
DOUBT = 2  # segments that were sent again: a pause of a busy host makes one
PAIRS, MANY = 50, 5  # of these pairs of segments, so many sent again are no accident
SENT_AGAIN, HAD_TWICE, KNOWN = 100, 216, 220  # tcp_info's tcpi_total_retrans and tcpi_dsack_dups; Linux 4.19 has both
LATE = 0.3  # seconds in which the peer says that it had something already
SEGMENTS = (8000, 4000, 1460, 1440, 1420, 1400, 1380, 1360, 1320, 1280, 1240, 1200, 1100, 1000, 800, MSS)
IP_AND_TCP = {False: 40, True: 60}  # bytes of headers, by whether it is IPv6


@dataclass(frozen=True, slots=True)
class Answer:
    """How a try ended; ``mtu`` is the size of the largest packet that passed, where larger ones are lost.

    ``again`` is how many of a hundred packets had to be sent again.
    """

    state: str
    mtu: int | None = None
    again: int = 0


def probe(address: str, port: int) -> Answer:
    """Connect, send little in small segments, then much in the largest: what gets lost, and where."""
    small = _passes(address, port, SMALL, MSS)
    if small.state != OK:
        return small
    large = _passes(address, port, LARGE, None)
    if large.state != OK or small.again + large.again >= DOUBT:
        again = _sent_again(address, port)
        if again >= MANY:
            return Answer(SOME_LOST, again=again)
    if large.state == OK:
        return Answer(OK)
    with ThreadPoolExecutor(1 + len(SEGMENTS)) as pool:
        largest, *passed = pool.map(lambda size: _passes(address, port, LARGE, size).state == OK, (None, *SEGMENTS))
    if largest:  # a pause of a host or of the network: packets that are too large never pass
        return Answer(OK)
    best = max((size for size, passes in zip(SEGMENTS, passed, strict=True) if passes), default=None)
    return Answer(LARGE_LOST, best + IP_AND_TCP[":" in address]) if best else Answer(LOST)


def _passes(address: str, port: int, size: int, segment: int | None) -> Answer:
    """Return OK where the peer's kernel has acknowledged so many bytes in segments of so many."""
    try:
        with _connected(address, port, segment) as sock:
            if sys.platform != "linux":
                return Answer(OK)
            arrived = _drained(sock, memoryview(bytes(size)))
            return Answer(OK if arrived else LOST, again=_lost(sock))
    except OSError as exc:
        return Answer(ending(exc))


def _sent_again(address: str, port: int) -> int:
    """Return how many of a hundred segments were sent again, two at a time; 0 where they do not get that far."""
    pair, ends_at, sent = bytes(2 * MSS), time.monotonic() + 2 * DRAIN, 0
    with contextlib.suppress(OSError), _connected(address, port, MSS) as sock:
        while sent < PAIRS and time.monotonic() < ends_at:
            _drained(sock, memoryview(pair))
            sent += 1
        time.sleep(LATE)
        return min(100, 100 * _lost(sock) // (2 * sent))
    return 0


@contextlib.contextmanager
def _connected(address: str, port: int, segment: int | None) -> Iterator[socket.socket]:
    """Yield a connection that sends at once, and leave nothing of it behind."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM) as sock:
        if segment is not None and hasattr(socket, "TCP_MAXSEG"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, segment)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(CONNECT)
        try:
            sock.connect((address, port))
            sock.settimeout(0)
            yield sock
        finally:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _lost(sock: socket.socket) -> int:
    """Return how many segments were sent again, and were not there already; 0 where the kernel does not count them."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, KNOWN)
    if len(info) < KNOWN:
        return 0
    again, twice = (int.from_bytes(info[at : at + 4], sys.byteorder) for at in (SENT_AGAIN, HAD_TWICE))
    return max(0, again - twice)


def _drained(sock: socket.socket, left: memoryview) -> bool:
    size, ends_at = len(left), time.monotonic() + DRAIN
    while True:
        if left:
            with contextlib.suppress(BlockingIOError):
                left = left[sock.send(left) :]
        waiting = struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, b"\0" * 4))[0]
        if not waiting and not left:
            return True
        again = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[2]
        if again >= TIMES:
            return False
        if time.monotonic() > ends_at:
            arrived = size - len(left) - waiting
            return (
                not again and arrived > 0
            )  # slow, and nothing is lost: what this kernel itself drops it does not count
        time.sleep(0.005)
