"""What a process whose communication has failed sees around it: variables, its network interface, who has the port."""

from __future__ import annotations

import os
import re
from typing import Any

from ddpdoctor.host.network import Network, gather_network

RESTARTS = "TORCHELASTIC_RESTART_COUNT"
VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")
IN_USE = re.compile(r"port: (\d+)[\s\S]{0,120}?EADDRINUSE|:(\d+) \(errno: 98\b")
Seen = tuple[tuple[str, str], ...]


def rendezvous(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Seen:
    """Return what init_process_group was told: by its arguments, by the environment."""
    given = {"backend": args[0] if args else None, "init_method": args[1] if args[1:] else None, **kwargs}
    said = [f"{name}={value!r}" for name, value in given.items() if isinstance(value, (str, int))]
    there = [f"{name}={os.environ[name]}" if name in os.environ else f"{name} is not set" for name in VARIABLES]
    restarts = os.environ.get(RESTARTS, "0")
    again = restarts != "0" and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return (
        (f"init_process_group({', '.join(said)})", "the call"),
        (", ".join(there), "environment of this process"),
        *(((f"{RESTARTS}={restarts}", "torchrun, whose store outlives a start of the ranks"),) if again else ()),
    )


def backend(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return the backend that init_process_group is told; empty where it is told none."""
    return str(args[0] if args else kwargs.get("backend", ""))


def address(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return where init_process_group meets the other ranks; empty where a store was handed to it."""
    given = kwargs.get("init_method") or (args[1] if args[1:] else None)
    if kwargs.get("store") is not None:
        return ""
    if given and not str(given).startswith("env://"):
        return str(given)
    return ":".join(os.environ.get(name, f"({name} is not set)") for name in ("MASTER_ADDR", "MASTER_PORT"))


def network(error: str = "") -> Seen:
    """Return the interface that gloo chooses, those that NCCL was told, and who listens on the master's port.

    An ``error`` can name the port that it was refused: then that is all there is to see.
    """
    host = gather_network()
    if refused := IN_USE.search(error):
        return _listener(host, refused[1] or refused[2], is_refused=True)
    told = os.environ.get("NCCL_SOCKET_IFNAME")
    nccl = ((f"NCCL_SOCKET_IFNAME={told}", "environment of this process"),) if told else ()
    return (*_gloo(host), *nccl, *_listener(host, os.environ.get("MASTER_PORT", "")))


def _gloo(host: Network) -> Seen:
    if told := os.environ.get("GLOO_SOCKET_IFNAME"):
        return ((f"gloo was told to use {told}: GLOO_SOCKET_IFNAME", "environment of this process"),)
    names = [each.name for each in host.interfaces if set(each.addresses) & set(host.own.addresses)]
    if not names:
        return ()
    resolved = ", ".join(host.own.addresses)
    return ((f"gloo uses {names[0]}: the host name {host.hostname} resolves to {resolved}", "this host"),)


def _listener(host: Network, port: str, *, is_refused: bool = False) -> Seen:
    listeners = [each for each in host.listeners if str(each.port) == port]
    if is_refused and any(each.pid == os.getpid() for each in listeners):
        return ((f"this process itself listens on port {port} already", "TCP sockets of this host"),)
    found = [each for each in listeners if each.pid != os.getpid()]
    who = f"pid {found[0].pid} ({found[0].command})" if found and found[0].pid else "a process"
    return ((f"{who} listens on port {port}", "TCP sockets of this host"),) if found else ()
