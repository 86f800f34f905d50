r"""The meeting's protocol: lines of JSON, each with a code that only processes of the same launch can make.

The server begins: ``ddpdoctor 1 NONCE TIME\n``. Then each side sends lines ``MAC JSON\n``, where MAC is HMAC-SHA256, in
hex, by the launch's token, over both nonces, the direction, the number of the line and the JSON. Nothing else is read
from a peer, no line is longer than LONGEST, and what is read is data: numbers, texts, lists and objects.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import re
import secrets
import socket
from dataclasses import dataclass, field
from typing import Any

from ddpdoctor.cluster.host import ProtocolError

LONGEST = 1 << 20  # bytes of a line: the report of a host with many findings
MAC = 64  # characters
GREETING = re.compile(rb"ddpdoctor 1 ([0-9a-f]{32}) (\d{1,12}\.\d{1,6})\n")
LONGEST_GREETING = 80
WRONG_TOKEN = "a line with a wrong code"  # noqa: S105 - what is said of it
REFUSED = b"ddpdoctor refuses: another token\n"
MSS = 536  # the segment that every IPv4 path passes (RFC 9293, 3.7.1): a broken path MTU must not stop the report


def new_nonce() -> bytes:
    """Return a number that is used once, in hex."""
    return secrets.token_hex(16).encode()


def greeting(nonce: bytes, now: float) -> bytes:
    """Return the server's first line."""
    return b"ddpdoctor 1 %s %.6f\n" % (nonce, now)


def small_segments(sock: socket.socket) -> None:
    """Keep a socket's segments small, before it connects or listens."""
    if hasattr(socket, "TCP_MAXSEG"):
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, MSS)


def as_text(value: object) -> str:
    """Return a value as JSON of one line."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False)


@dataclass(slots=True)
class Lines:
    """One direction of a connection cut into lines, however they come; what is not read yet is kept, and bounded."""

    longest: int = LONGEST
    _kept: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that are complete now.

        Raises:
            ProtocolError: a line is too long.
        """
        self._kept += data
        *lines, rest = bytes(self._kept).split(b"\n") if b"\n" in data else (bytes(self._kept),)
        if len(rest) > self.longest or any(len(line) > self.longest for line in lines):
            self._kept.clear()
            raise ProtocolError(f"a line is longer than {self.longest} bytes")
        self._kept = bytearray(rest)
        return lines


@dataclass(slots=True)
class Seal:
    """Makes and tests the codes of one direction of one connection."""

    token: bytes
    nonces: bytes
    direction: bytes
    _count: int = 0

    def close(self, value: object) -> bytes:
        """Return a value as a line."""
        return self.close_text(as_text(value))

    def close_text(self, text: str) -> bytes:
        """Return a value that is JSON already as a line."""
        body = text.encode()
        return self._code(body) + b" " + body + b"\n"

    def open(self, line: bytes) -> Any:
        """Return what a line says.

        Raises:
            ProtocolError: another launch, or nobody of this program, made it.
        """
        code, body = line[: MAC + 1], line[MAC + 1 :]
        if not hmac.compare_digest(code, self._code(body) + b" "):
            raise ProtocolError(WRONG_TOKEN)
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as exc:
            raise ProtocolError(f"no JSON: {exc}") from None

    def _code(self, body: bytes) -> bytes:
        self._count += 1
        said = b"%s %s %d " % (self.nonces, self.direction, self._count)
        return hmac.new(self.token, said + body, hashlib.sha256).hexdigest().encode()


def seals(token: bytes, server_nonce: bytes, client_nonce: bytes) -> tuple[Seal, Seal]:
    """Return the seals of what the server says, and of what the client says."""
    nonces = server_nonce + client_nonce
    return Seal(token, nonces, b"server"), Seal(token, nonces, b"client")
