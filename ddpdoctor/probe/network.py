"""This host in its network: names, interfaces, ports; and what gloo and NCCL make of them."""

from __future__ import annotations

import errno
import fnmatch
import re
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PATIENCE = 3.0  # seconds for a look-up: a resolver that needs longer is a fault of its own
VIRTUAL = ("docker*", "br-*", "virbr*", "veth*", "cni*", "flannel*", "cali*", "vmnet*", "podman*", "lxcbr*", "lxdbr*")


@dataclass(frozen=True, slots=True)
class Resolution:
    """What a name resolves to; ``problem`` says why it does not."""

    name: str
    addresses: tuple[str, ...]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface that has at least one address, or is at least there."""

    name: str
    addresses: tuple[str, ...]
    up: bool

    @property
    def loopback(self) -> bool:
        """Tell the loopback interface."""
        return any(is_loopback(address) for address in self.addresses) or self.name == "lo"

    @property
    def virtual(self) -> bool:
        """Tell a bridge of containers or virtual machines: other hosts do not reach it."""
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
    """The host's name, what it resolves to, the interfaces and the ports in use."""

    hostname: str
    own: Resolution
    interfaces: tuple[Interface, ...]
    listeners: tuple[Listener, ...]

    def owns(self, address: str) -> bool:
        """Tell whether an address is one of this host."""
        return is_loopback(address) or any(address in interface.addresses for interface in self.interfaces)

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
        )
        for name, entries in psutil.net_if_addrs().items()
    )
    return Network(hostname, resolve(hostname), interfaces, _listeners())


def is_loopback(address: str) -> bool:
    """Tell an address that other hosts cannot reach."""
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
    return answer[0] if answer else Resolution(name, (), f"no answer within {PATIENCE:.0f} s")


def connect(address: str, port: int, patience: float = 2.0) -> str:
    """Try a TCP connection; give ``open``, ``refused``, ``filtered`` (no answer) or ``unreachable``."""
    try:
        with socket.create_connection((address, port), timeout=patience):
            return "open"
    except TimeoutError:
        return "filtered"
    except ConnectionRefusedError:
        return "refused"
    except OSError as exc:
        return "filtered" if exc.errno == errno.ETIMEDOUT else "unreachable"


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
    if pid is None:
        return ""
    import psutil

    try:
        return " ".join(psutil.Process(pid).cmdline())[:120]
    except psutil.Error:
        return ""


def wanted(names: tuple[str, ...], setting: str) -> tuple[str, ...]:
    """Give the interfaces that NCCL_SOCKET_IFNAME lets through, in NCCL's syntax.

    A comma-separated list of prefixes; ``=`` in front makes them exact names, ``^`` excludes them, ``^=`` excludes
    exact names (NCCL documentation, "NCCL_SOCKET_IFNAME").
    """
    exclude, rest = setting.startswith("^"), setting.removeprefix("^")
    exact, rest = rest.startswith("="), rest.removeprefix("=")
    entries = [entry for entry in rest.split(",") if entry]

    def listed(name: str) -> bool:
        return any(name == entry if exact else name.startswith(entry) for entry in entries)

    return tuple(name for name in names if listed(name) is not exclude)


def nccl_interface(network: Network, setting: str | None) -> Interface | None:
    """Give the interface that NCCL's bootstrap takes.

    Without a setting: one whose name begins with ``ib``; else any but loopback and docker; else docker; else
    loopback (NCCL documentation, "NCCL_SOCKET_IFNAME", default).
    """
    usable = [each for each in network.interfaces if each.up and any(_routable(a) for a in each.addresses)]
    if setting:
        names = wanted(tuple(each.name for each in usable), setting)
        return next((each for each in usable if each.name in names), None)
    groups: tuple[Any, ...] = (
        lambda each: each.name.startswith("ib"),
        lambda each: not each.loopback and not each.name.startswith("docker"),
        lambda each: each.name.startswith("docker"),
        lambda each: each.loopback,
    )
    return next((each for group in groups for each in usable if group(each)), None)


def gloo_address(network: Network, setting: str | None) -> str | None:
    """Give the address that gloo advertises to the other ranks.

    With GLOO_SOCKET_IFNAME that interface's; else what the host name resolves to, where that is an address of this
    host; else loopback (torch, ProcessGroupGloo::createDefaultDevice; seen with torch 2.13).
    """
    if setting:
        chosen = next((each for each in network.interfaces if each.name == setting.split(",")[0]), None)
        return chosen.addresses[0] if chosen is not None and chosen.addresses else None
    return next((address for address in network.own.addresses if network.owns(address)), "127.0.0.1")


def _routable(address: str) -> bool:
    return not re.match(r"fe80:|169\.254\.", address, re.IGNORECASE)


def several_hosts(environ: Mapping[str, str]) -> str:
    """Say by which variable the environment shows that several hosts take part; empty when none does."""
    for name in ("SLURM_NNODES", "SLURM_JOB_NUM_NODES", "NNODES", "PET_NNODES", "GROUP_WORLD_SIZE"):
        value = environ.get(name, "").rpartition(":")[2]
        if value.isascii() and value.isdigit() and int(value) > 1:
            return f"{name}={environ[name]}"
    world, local = environ.get("WORLD_SIZE", ""), environ.get("LOCAL_WORLD_SIZE", "")
    if world.isascii() and world.isdigit() and local.isascii() and local.isdigit() and int(world) > int(local) > 0:
        return f"WORLD_SIZE={world} with LOCAL_WORLD_SIZE={local}"
    return ""
