"""A host that comes to the meeting: finds the master, says who it is, and hears what is to be done."""

from __future__ import annotations

import contextlib
import errno
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ddpdoctor.cluster.wire.protocol import (
    GREETING,
    LONGEST_GREETING,
    REFUSED as REFUSAL,
    Lines,
    Seal,
    new_nonce,
    seals,
    small_segments,
)

CONNECT = 3.0  # seconds for a connection: a first packet that is lost is sent again after one
ANSWER = 5.0  # seconds for the greeting
PAUSE = 0.5
LATER = 3.0  # seconds after which the master is looked for at other ports, too
CHUNK = 1 << 16

REFUSED, SILENT, UNREACHABLE, STRANGER = "refused", "silent", "unreachable", "another program"
OTHER_JOB, LOST_AGAIN, NO_STORE, FULL = "another token", "lost again", "no store", "all are there"
"""How a try ends, where it is not a meeting."""


@dataclass(frozen=True, slots=True)
class Try:
    """One try to reach the master; ``ended`` is one of the words above, ``said`` what a stranger said."""

    address: str
    port: int
    ended: str
    said: str = ""


class Client:
    """A connection to the meeting's host; a context manager. ``skew``: by how much this host's clock is ahead."""

    def __init__(self, sock: socket.socket, ours: Seal, theirs: Seal, skew: float) -> None:
        """Take over a connection that has been greeted."""
        self._sock, self._ours, self._theirs = sock, ours, theirs
        self._lines, self._waiting = Lines(), list[bytes]()
        self.skew = skew

    def __enter__(self) -> Client:  # noqa: PYI034 - typing.Self is of Python 3.11
        """Return the connection."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self._sock.close()

    def tell(self, stage: str, **values: object) -> None:
        """Send something to the meeting's host.

        Raises:
            OSError: it is gone.
        """
        self._sock.settimeout(ANSWER)
        self._sock.sendall(self._ours.close({"stage": stage, **values}))

    def hear(self, until: float) -> Any:
        """Return what the meeting's host says next.

        Raises:
            PermissionError: it is of another launch.
            OSError: it is gone, or says nothing in time.
            ProtocolError: it says what no host of this launch says.
        """
        while not self._waiting:
            self._sock.settimeout(max(0.01, until - time.monotonic()))
            data = self._sock.recv(CHUNK)
            if not data:
                raise ConnectionResetError(errno.ECONNRESET, "the meeting's host closed the connection")
            self._waiting += self._lines.feed(data)
        line = self._waiting.pop(0)
        if line == REFUSAL.strip():
            raise PermissionError(errno.EACCES, "the meeting's host knows another token")
        return self._theirs.open(line)


def find(
    resolve: Callable[[], tuple[str, ...]],
    ports: tuple[int, ...],
    token: bytes,
    until: float,
    waiting: Callable[[list[Try]], bool],
) -> tuple[Client | None, list[Try]]:
    """Look for the master until it is found, or ``waiting``, which is shown the last tries, says that it is in vain.

    Of ``ports`` the first is the master's; the others are looked at after LATER seconds, or when a stranger has it.
    """
    started = time.monotonic()
    while True:
        tries: list[Try] = []
        for address in resolve():
            late = time.monotonic() - started > LATER
            for port in ports if late or any(each.ended == STRANGER for each in tries) else ports[:1]:
                client, tried = _try(address, port, token)
                if client is not None:
                    return client, tries
                tries.append(tried)
                if port == ports[0] and tried.ended == STRANGER:
                    late = True
        if time.monotonic() >= until or waiting(tries):
            return None, tries
        time.sleep(PAUSE)


def _try(address: str, port: int, token: bytes) -> tuple[Client | None, Try]:
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        small_segments(sock)
        sock.settimeout(CONNECT)
        sock.connect((address, port))
    except OSError as exc:
        sock.close()
        return None, Try(address, port, ending(exc))
    try:
        client, said = _greeted(sock, token)
    except OSError as exc:
        client, said = None, str(exc)
    if client is None:
        sock.close()
        return None, Try(address, port, STRANGER, said)
    return client, Try(address, port, "")


def _greeted(sock: socket.socket, token: bytes) -> tuple[Client | None, str]:
    sock.settimeout(ANSWER)
    data = b""
    with contextlib.suppress(TimeoutError):
        while b"\n" not in data and len(data) < LONGEST_GREETING and (more := sock.recv(LONGEST_GREETING - len(data))):
            data += more
    match = GREETING.fullmatch(data)
    if match is None:
        return None, repr(data[:40])[2:-1]
    skew = time.time() - float(match[2])
    nonce = new_nonce()
    sock.sendall(nonce + b"\n")
    theirs, ours = seals(token, match[1], nonce)
    return Client(sock, ours, theirs, skew), ""


def ending(exc: OSError) -> str:
    """Return how a connection ended, by what the kernel says."""
    if isinstance(exc, TimeoutError) or exc.errno == errno.ETIMEDOUT:
        return SILENT
    return REFUSED if isinstance(exc, ConnectionRefusedError) else UNREACHABLE
