"""Whether a host of the same network is still there, as this host's kernel knows: what it sends it, it asks for first.

A host that is up answers such a request (ARP, RFC 826) whatever its processes do and its firewall drops. Between hosts
of different networks a router answers, so that nothing is known of them. Source: arp(7); proc(5), /proc/net/arp.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

NO_ANSWER = 0
"""The flags of an entry for which no hardware address is known: requests were sent, and nobody has answered."""
DISCARD = 9  # nobody listens there (RFC 863)


def unanswered(pid: int) -> frozenset[str]:
    """Return the addresses in the networks of a process from which no answer came when they were last asked for."""
    found = set()
    with suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/net/arp").read_text().splitlines()[1:]:
            address, _, flags, *_ = line.split()
            if int(flags, 16) == NO_ANSWER:
                found.add(address)
    return frozenset(found)


def ask_for(pairs: Iterable[tuple[str, str]]) -> None:
    """Send an empty datagram from each first address to the second, which makes the kernel ask who has that."""
    for local, peer in pairs:
        with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.settimeout(0)
            asking.bind((local, 0))
            asking.sendto(b"", (peer, DISCARD))
