"""Ports of this host: a socket that listens on all addresses, and room for those who come."""

from __future__ import annotations

import contextlib
import errno
import resource
import socket

from ddpdoctor.cluster.wire.protocol import small_segments

BESIDE = 256  # files that are open besides


def listening(port: int, *, small: bool = False) -> socket.socket:
    """Return a socket that listens on a port of all addresses, of both families where there are both.

    ``small``: peers send small segments alone, which every path passes.

    Raises:
        OSError: the port cannot be opened.
    """
    for family, address in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):  # noqa: S104 - the launch has several hosts
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            continue
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            if small:
                small_segments(sock)
            sock.bind((address, port))
            sock.listen(1024)
        except OSError as exc:
            sock.close()
            if family == socket.AF_INET6 and exc.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                continue
            raise
        return sock
    raise OSError(errno.EAFNOSUPPORT, "no IP here")


def make_room(connections: int) -> None:
    """Raise this process's own limit of open files, as far as it may, where so many connections do not fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + BESIDE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def plain(address: str) -> str:
    """Return an IPv4 address as such where a socket of both families shows it as IPv6."""
    return address.removeprefix("::ffff:").partition("%")[0]
