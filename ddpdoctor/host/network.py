"""This host in its network: names, interfaces, ports; and what gloo and NCCL make of them."""

from __future__ import annotations

import errno
import fnmatch
import socket
import threading
from dataclasses import dataclass
from ipaddress import ip_interface
from pathlib import Path

HOSTS = Path("/etc/hosts")
PATIENCE = 3.0  # seconds for a look-up: a resolver that needs longer is a fault of its own
NO_ANSWER = "no answer within"
VIRTUAL = ("docker*", "br-*", "virbr*", "veth*", "cni*", "flannel*", "cali*", "vmnet*", "podman*", "lxcbr*", "lxdbr*")


@dataclass(frozen=True, slots=True)
class Resolution:
    """What a name resolves to; ``problem`` says why it does not."""

    name: str
    addresses: tuple[str, ...]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface that has at least one address, or is at least there.

    ``networks`` are its IPv4 addresses with the length of their mask, ``10.0.0.5/24``. ``unplugged``: it is set up, and
    nothing is at the other end of its cable.
    """

    name: str
    addresses: tuple[str, ...]
    up: bool
    networks: tuple[str, ...] = ()
    unplugged: bool = False

    @property
    def loopback(self) -> bool:
        """Whether this is the loopback interface."""
        return any(is_loopback(address) for address in self.addresses) or self.name == "lo"

    @property
    def virtual(self) -> bool:
        """Whether this is a bridge of containers or virtual machines, which other hosts do not reach."""
        return any(fnmatch.fnmatch(self.name, pattern) for pattern in VIRTUAL)


@dataclass(frozen=True, slots=True)
class Listener:
    """A TCP port that a process of this host listens on; pid and command where we are allowed to know."""

    address: str
    port: int
    pid: int | None
    command: str


@dataclass(frozen=True, slots=True)
class Network:
    """The host's name, what it resolves to, the interfaces and the ports in use.

    ``translated`` are addresses of no interface which lead here all the same, as was seen: by a NAT, a load balancer.
    ``entries`` are the lines of /etc/hosts that name this host, each behind its number.
    """

    hostname: str
    own: Resolution
    interfaces: tuple[Interface, ...]
    listeners: tuple[Listener, ...]
    translated: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()

    def owns(self, address: str) -> bool:
        """Whether an address is one of this host."""
        there = any(address in interface.addresses for interface in self.interfaces)
        return there or is_loopback(address) or address in self.translated

    def resolve(self, name: str) -> Resolution:
        """Look a name up, for at most PATIENCE seconds."""
        return self.own if name == self.own.name else resolve(name)


def gather_network() -> Network:
    """Look at this host."""
    import psutil

    hostname = socket.gethostname()
    stats = psutil.net_if_stats()
    interfaces = tuple(
        Interface(
            name,
            tuple(
                entry.address.partition("%")[0]
                for entry in entries
                if entry.family in (socket.AF_INET, socket.AF_INET6)
            ),
            name in stats and stats[name].isup,
            tuple(
                ip_interface(f"{entry.address}/{entry.netmask}").with_prefixlen
                for entry in entries
                if entry.family == socket.AF_INET and entry.netmask
            ),
            name in stats and not stats[name].isup and "up" in stats[name].flags.split(","),
        )
        for name, entries in psutil.net_if_addrs().items()
    )
    return Network(hostname, resolve(hostname), interfaces, _listeners(), entries=_entries(hostname))


def _entries(hostname: str) -> tuple[str, ...]:
    try:
        lines = HOSTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ()
    words = ((number, line.partition("#")[0].split()) for number, line in enumerate(lines, 1))
    return tuple(f"{HOSTS}:{number}: {' '.join(each)}" for number, each in words if hostname in each[1:])


def is_loopback(address: str) -> bool:
    """Whether other hosts cannot reach an address."""
    return address.startswith("127.") or address == "::1"


def resolve(name: str) -> Resolution:
    """Look a name up, for at most PATIENCE seconds."""
    answer: list[Resolution] = []

    def look_up() -> None:
        try:
            found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            addresses = dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found)
            answer.append(Resolution(name, tuple(addresses)))
        except (OSError, ValueError) as exc:  # ValueError: a name that no resolver is asked for
            answer.append(Resolution(name, (), str(getattr(exc, "strerror", "") or exc)))

    thread = threading.Thread(target=look_up, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return answer[0] if answer else Resolution(name, (), f"{NO_ANSWER} {PATIENCE:.0f} s")


def try_connect(address: str, port: int, patience: float = 2.0) -> str:
    """Try a TCP connection; return ``open``, ``refused``, ``filtered`` (no answer) or ``unreachable``."""
    try:
        with socket.create_connection((address, port), timeout=patience):
            return "open"
    except TimeoutError:
        return "filtered"
    except ConnectionRefusedError:
        return "refused"
    except OSError as exc:
        return "filtered" if exc.errno == errno.ETIMEDOUT else "unreachable"


def source_address(address: str) -> str:
    """Return the address from which this host would send to another one, by its routes; empty where it has none."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as unsent:  # connecting it sends nothing
            unsent.connect((address, 9))
            return str(unsent.getsockname()[0])
    except OSError:
        return ""


def half_open(port: int) -> tuple[str, ...]:
    """Return the addresses that ask for a connection to a port here, and do not get what the kernel answers."""
    import psutil

    try:
        found = psutil.net_connections("tcp")
    except (psutil.AccessDenied, OSError):
        return ()
    asking = [
        each.raddr.ip.removeprefix("::ffff:")
        for each in found
        if each.status == psutil.CONN_SYN_RECV and each.raddr and each.laddr and each.laddr.port == port
    ]
    return tuple(dict.fromkeys(asking))


def _listeners() -> tuple[Listener, ...]:
    import psutil

    try:
        found = psutil.net_connections("tcp")
    except (psutil.AccessDenied, OSError):
        return ()
    return tuple(
        Listener(entry.laddr.ip, entry.laddr.port, entry.pid, _command(entry.pid))
        for entry in found
        if entry.status == psutil.CONN_LISTEN and entry.laddr
    )


def _command(pid: int | None) -> str:
    """Return what a process runs, its interpreter and program without their folders: there is room for the script."""
    if pid is None:
        return ""
    import psutil

    try:
        words = psutil.Process(pid).cmdline()
    except psutil.Error:
        return ""
    if len(words) > 1 and Path(words[0]).name.startswith("python"):
        words = [Path(words[0]).name, Path(words[1]).name, *words[2:]]
    return " ".join(words)[:120]
