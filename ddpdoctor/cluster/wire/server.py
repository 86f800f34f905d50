"""The meeting's host: listens on the master's port, hears what each host says, and answers all of them at once."""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ddpdoctor.cluster.host import ProtocolError
from ddpdoctor.cluster.wire.ports import listening, make_room, plain
from ddpdoctor.cluster.wire.protocol import REFUSED, Lines, Seal, as_text, greeting, new_nonce, seals

PATIENCE = 10.0  # seconds that a connection has for its first line
STRANGERS = 64  # connections that have not shown a token, at the same time, and twice as many as the hosts at least
CHUNK = 1 << 16
TICK = 0.2


@dataclass(slots=True)
class Guest:
    """A connection; a host's once its first line has come. ``ours`` is the address here that it came to."""

    sock: socket.socket
    address: str
    ours: str
    nonce: bytes
    since: float
    lines: Lines = field(default_factory=lambda: Lines(longest=64))
    said: dict[str, Any] = field(default_factory=dict)
    ours_seal: Seal | None = None
    theirs_seal: Seal | None = None
    gone: str = ""


@dataclass(frozen=True, slots=True)
class Stranger:
    """Somebody who came and is no host of this launch: ``what`` says what is wrong."""

    address: str
    what: str


class Server:
    """Listens on a port of all addresses; a context manager. Nothing of it is left when it ends."""

    def __init__(self, port: int, token: bytes, expected: int = 0) -> None:
        """Open the port, for so many hosts, which can all come at the same time.

        Raises:
            OSError: it cannot be opened; EADDRINUSE where somebody has it.
        """
        self._token = token
        self._strangers = max(STRANGERS, 2 * expected)
        make_room(self._strangers)
        self._selector = selectors.DefaultSelector()
        self._listener = listening(port, small=True)
        self._listener.settimeout(0)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self.port: int = self._listener.getsockname()[1]
        self.guests: list[Guest] = []
        self.strangers: list[Stranger] = []
        self.full = ""
        """What is told to a host that comes when all are there that are waited for."""

    def __enter__(self) -> Server:  # noqa: PYI034 - typing.Self is of Python 3.11
        """Return the server."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close all."""
        for guest in self.guests:
            guest.sock.close()
        self._listener.close()
        self._selector.close()

    def close_door(self) -> None:
        """Listen no longer, so that the training can have the port; those who have come stay."""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(self._listener)
        self._listener.close()

    def collect(self, stage: str, enough: Callable[[list[Guest]], bool], until: float) -> list[Guest]:
        """Listen until ``enough`` holds for those who have said something of this stage, or the time has come."""
        while True:
            have = [guest for guest in self.guests if stage in guest.said]
            left = until - time.monotonic()
            if enough(have) or left <= 0:
                return have
            self._turn(min(left, TICK))

    def announce(self, value: object, guests: list[Guest]) -> None:
        """Send something to some hosts; one that is gone is marked so."""
        text = as_text(value)
        for guest in guests:
            self.tell(guest, text)

    def tell(self, guest: Guest, text: str) -> None:
        """Send JSON to a host; if it is gone, it is marked so."""
        if guest.ours_seal is None or guest.gone:
            return
        try:
            guest.sock.settimeout(PATIENCE)
            guest.sock.sendall(guest.ours_seal.close_text(text))
            guest.sock.settimeout(0)
        except OSError as exc:
            self._leave(guest, str(exc))

    def _turn(self, patience: float) -> None:
        for key, _ in self._selector.select(patience):
            if key.fileobj is self._listener:
                self._welcome()
            else:
                self._hear(key.data)
        now = time.monotonic()
        for guest in [each for each in self.guests if each.theirs_seal is None and now - each.since > PATIENCE]:
            self._drop(guest, "it says nothing")

    def _welcome(self) -> None:
        try:
            sock, address = self._listener.accept()
        except OSError:
            return
        waiting = [guest for guest in self.guests if guest.theirs_seal is None]
        if len(waiting) >= self._strangers:
            self._drop(waiting[0], "it says nothing")
        nonce = new_nonce()
        try:
            sock.settimeout(0)
            sock.send(greeting(nonce, time.time()))
            ours = plain(sock.getsockname()[0])
        except OSError:
            sock.close()
            return
        guest = Guest(sock, plain(address[0]), ours, nonce, time.monotonic())
        self.guests.append(guest)
        self._selector.register(sock, selectors.EVENT_READ, guest)

    def _hear(self, guest: Guest) -> None:
        try:
            data = guest.sock.recv(CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as exc:
            self._leave(guest, str(exc))
            return
        if not data:
            self._leave(guest, "it closed the connection")
            return
        try:
            # The first line, a nonce, is short; what follows it in the same packet is read by the longer measure.
            while data:
                cut = data.find(b"\n") + 1 if guest.theirs_seal is None else len(data)
                for line in guest.lines.feed(data[: cut or len(data)]):
                    self._line(guest, line)
                data = data[cut or len(data) :]
        except ProtocolError as exc:
            self._drop(guest, str(exc))

    def _line(self, guest: Guest, line: bytes) -> None:
        if guest.theirs_seal is None:
            if len(line) != len(guest.nonce) or not set(line) <= set(b"0123456789abcdef"):
                raise ProtocolError("it speaks another protocol")
            guest.ours_seal, guest.theirs_seal = seals(self._token, guest.nonce, line)
            guest.lines = Lines()
            return
        said = guest.theirs_seal.open(line)
        if not isinstance(said, dict) or not isinstance(said.get("stage"), str) or len(guest.said) > 16:  # noqa: PLR2004 - stages
            raise ProtocolError("a line of no stage")
        said["heard"] = time.time()
        guest.said.setdefault(said["stage"], said)
        if self.full and said["stage"] == "hello":
            self.tell(guest, self.full)

    def _leave(self, guest: Guest, why: str) -> None:
        guest.gone = why
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(guest.sock)
        guest.sock.close()
        if not guest.said:
            self.guests.remove(guest)

    def _drop(self, guest: Guest, why: str) -> None:
        """Send somebody away who is no host of this launch."""
        if not guest.said and len(self.strangers) < STRANGERS:
            self.strangers.append(Stranger(guest.address, why))
        with contextlib.suppress(OSError):
            guest.sock.send(REFUSED)
        self._leave(guest, why)
