"""Connections of a process whose other end does not answer, as this host's kernel counts it: nobody is asked.

A peer's kernel acknowledges what comes, whatever its processes do: one that is busy or stopped is not taken for one
that is gone. Source: proc_net_tcp.txt of Linux's documentation; net/ipv4/tcp_ipv4.c, ``get_tcp4_sock``.
"""

from __future__ import annotations

import ipaddress
import socket
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ddpdoctor.host.process.neighbours import ask_for, unanswered

ESTABLISHED, CONNECTING = "01", "02"
RESENDS = "01"  # the timer that runs: data waits to be sent again
WEB = frozenset({80, 443})  # of what keeps logs and data: no rank is there, and no rank waits for it
SURE = 6  # tries in a row without an answer: 12.6 seconds at least, longer than a link takes to come up again
USUAL = 32768  # the least port that Linux picks unless it is told otherwise
MOST = 16  # hosts that are asked for
TRIES = 4  # in a row without an answer, with twice the time each: three seconds at least, minutes where it is cut


@dataclass(frozen=True, slots=True)
class Peer:
    """A host that has not acknowledged ``unacked`` bytes, which were sent again ``tries`` times.

    ``local`` is the address here, ``interface`` has it; ``down`` tells that this interface is, whatever was sent, or,
    where there is none, that no interface has the address any more.
    ``connecting`` is the port there where no connection came about yet: 0 where there is one. ``stand`` are the others
    that did come about. ``answers``: a small packet was answered all the same, by a connection or a refusal.
    ``left``: nobody in the network answers to its address any more (ARP), however busy or stopped a host is.
    """

    local: str
    peer: str
    unacked: int
    tries: int
    interface: str = ""
    down: bool = False
    connecting: int = 0
    stand: int = 0
    answers: bool = False
    left: bool = False

    @property
    def cut(self) -> bool:
        """Whether it is certain by now, however short the wait was."""
        return self.down or (self.unacked > 0 and self.tries >= SURE)

    @property
    def silent(self) -> bool:
        """Whether nothing goes there and comes back any more."""
        return self.down or self.left or ((self.unacked > 0 or self.connecting > 0) and self.tries >= TRIES)


def peers(pids: Iterable[int]) -> tuple[Peer, ...]:
    """Return the hosts at the other ends of these processes' connections, each by the worst of them.

    This host is none of them: what goes to its own addresses passes no interface. None where the kernel does not tell.
    """
    links = _interfaces()
    found: dict[str, Peer] = {}
    stand: Counter[str] = Counter()
    picked = _picked()
    for pid in pids:
        left = unanswered(pid)
        for local, peer, unacked, tries, connecting, of_ranks in _connections(pid, picked):
            if peer in links:
                continue
            stand[peer] += not connecting
            name, up = links.get(local, ("", not _is_here(pid) or ipaddress.ip_address(local).is_loopback))
            is_left = peer in left and (unacked > 0 or of_ranks) and not connecting
            new = Peer(local, peer, unacked, tries, name, not up, connecting, left=is_left)
            before = found.get(peer, new)
            found[peer] = max(before, new, key=lambda each: (each.down, each.left, each.tries, each.unacked))
    return tuple(replace(found[peer], stand=stand[peer]) for peer in sorted(found))


def ask_for_quiet_ones(found: Iterable[Peer], pids: Iterable[int]) -> None:
    """Let the kernel ask for the hosts to which nothing is under way: of the others it finds out by itself."""
    quiet = [(each.local, each.peer) for each in found if not (each.unacked or each.silent or ":" in each.peer)]
    if all(map(_is_here, pids)):
        ask_for(quiet[:MOST])


def _is_here(pid: int) -> bool:
    """Whether a process has the interfaces of this one: those of a container are others."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/ns/net").readlink() == Path("/proc/self/ns/net").readlink()
    return False


def _interfaces() -> dict[str, tuple[str, bool]]:
    """Return by address the interface that has it, and whether that is up."""
    import psutil

    states = psutil.net_if_stats()
    return {
        each.address.partition("%")[0]: (name, states[name].isup)
        for name, addresses in psutil.net_if_addrs().items()
        for each in addresses
        if each.family in {socket.AF_INET, socket.AF_INET6} and name in states
    }


def _connections(pid: int, picked: int) -> Iterator[tuple[str, str, int, int, int, bool]]:
    """Yield the addresses, unacknowledged bytes and tries of a process's connections, and the port of a coming one.

    The last tells whether the kernel has picked both ports, as between ranks: what serves others has one of its own.
    It picks from ``picked`` on.
    """
    own = set(_sockets(pid))
    for table in ("tcp", "tcp6"):
        with suppress(OSError, ValueError, IndexError):
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                words = line.split()
                if words[3] not in {ESTABLISHED, CONNECTING} or words[9] not in own:
                    continue
                local, peer = (_address(each.partition(":")[0]) for each in words[1:3])
                here, port = (int(each.partition(":")[2], 16) for each in words[1:3])
                if port in WEB:
                    continue
                tries = int(words[6], 16) if words[5].partition(":")[0] == RESENDS else 0
                unacked = int(words[4].partition(":")[0], 16)
                yield local, peer, unacked, tries, port if words[3] == CONNECTING else 0, min(here, port) >= picked


def _picked() -> int:
    """Return the least port that the kernel picks by itself."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    return USUAL


def _sockets(pid: int) -> Iterator[str]:
    """Yield the inodes of the sockets that a process has."""
    with suppress(OSError):
        for each in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                kind, _, inode = str(each.readlink()).partition(":")
                if kind == "socket":
                    yield inode.strip("[]")


def _address(text: str) -> str:
    """Read an address as the kernel prints it: words of 32 bits, each in this machine's order."""
    words = b"".join(bytes.fromhex(text[start : start + 8])[::-1] for start in range(0, len(text), 8))
    found = ipaddress.ip_address(words)
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)
