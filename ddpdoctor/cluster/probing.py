"""One host tries another's data port, and asks the kernel there, not the process: what it acknowledges has arrived.

A process that waits for its turn on a busy machine acknowledges nothing; its kernel does at once. So lost is told from
slow: bytes that stay unacknowledged while the kernel sends them again and again are lost (tcp(7), SIOCOUTQ, TCP_INFO).
"""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
import sys
import termios
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ddpdoctor.cluster.wire.client import ending
from ddpdoctor.cluster.wire.protocol import MSS

OK, LARGE_LOST, LOST, LOOPBACK, UNTRIED = "ok", "large packets lost", "data lost", "its own loopback", "not tried"
CONNECT = 4.0  # seconds: the first packet is sent at once, after one, and after three
DRAIN = 8.0  # seconds until all must have been acknowledged, where no packet is known to be lost
TIMES = 4  # that a packet is sent again before it counts as lost: three seconds
SMALL, LARGE = 4 << 10, 32 << 10  # bytes
SEGMENTS = (8000, 4000, 1440, 1420, 1400, 1380, 1360, 1320, 1280, 1240, 1200, 1100, 1000, 800, MSS)
IP_AND_TCP = {False: 40, True: 60}  # bytes of headers, by whether it is IPv6


@dataclass(frozen=True, slots=True)
class Answer:
    """How a try ended; ``mtu`` is the size of the largest packet that passed, where larger ones are lost."""

    state: str
    mtu: int | None = None


def probe(address: str, port: int) -> Answer:
    """Connect, send little in small segments, then much in the largest: what gets lost, and where."""
    state = _passes(address, port, SMALL, MSS)
    if state != OK:
        return Answer(state)
    if _passes(address, port, LARGE, None) == OK:
        return Answer(OK)
    with ThreadPoolExecutor(len(SEGMENTS)) as pool:
        passed = list(pool.map(lambda size: _passes(address, port, LARGE, size) == OK, SEGMENTS))
    best = max((size for size, passes in zip(SEGMENTS, passed, strict=True) if passes), default=None)
    return Answer(LARGE_LOST, best + IP_AND_TCP[":" in address]) if best else Answer(LOST)


def _passes(address: str, port: int, size: int, segment: int | None) -> str:
    """Return OK where the peer's kernel has acknowledged so many bytes in segments of so many."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        try:
            if segment is not None and hasattr(socket, "TCP_MAXSEG"):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, segment)
            sock.settimeout(CONNECT)
            sock.connect((address, port))
            sock.settimeout(0)
            left = memoryview(bytes(size))
            return OK if sys.platform != "linux" or _drained(sock, left) else LOST
        except OSError as exc:
            return ending(exc)
        finally:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # nothing is left behind


def _drained(sock: socket.socket, left: memoryview) -> bool:
    ends_at = time.monotonic() + DRAIN
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
            return not again  # slow, and nothing is lost
        time.sleep(0.005)
