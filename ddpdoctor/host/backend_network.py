"""What gloo and NCCL make of this host's network: which interface and address they choose."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddpdoctor.host.network import Interface, Network


def nccl_interfaces(names: tuple[str, ...], setting: str) -> tuple[str, ...]:
    """Return the interfaces that NCCL_SOCKET_IFNAME lets through, in NCCL's syntax.

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
    """Return the interface that NCCL's bootstrap takes.

    Without a setting: one whose name begins with ``ib``; else any but loopback and docker; else docker; else
    loopback (NCCL documentation, "NCCL_SOCKET_IFNAME", default).
    """
    usable = [each for each in network.interfaces if each.up and any(_routable(a) for a in each.addresses)]
    if setting:
        names = nccl_interfaces(tuple(each.name for each in usable), setting)
        return next((each for each in usable if each.name in names), None)
    groups: tuple[Any, ...] = (
        lambda each: each.name.startswith("ib"),
        lambda each: not each.loopback and not each.name.startswith("docker"),
        lambda each: each.name.startswith("docker"),
        lambda each: each.loopback,
    )
    return next((each for group in groups for each in usable if group(each)), None)


def gloo_address(network: Network, setting: str | None) -> str | None:
    """Return the address that gloo advertises to the other ranks.

    With GLOO_SOCKET_IFNAME that interface's; else what the host name resolves to, where that is an address of this
    host; else loopback (torch, ProcessGroupGloo::createDefaultDevice; seen with torch 2.13).
    """
    if setting:
        chosen = next((each for each in network.interfaces if each.name == setting.split(",")[0]), None)
        return chosen.addresses[0] if chosen is not None and chosen.addresses else None
    return next((address for address in network.own.addresses if network.owns(address)), "127.0.0.1")


def _routable(address: str) -> bool:
    return not re.match(r"fe80:|169\.254\.", address, re.IGNORECASE)
