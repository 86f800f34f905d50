"""Two hosts would give the others the same address for gloo or NCCL: who connects to it reaches one of them, or itself.

## What happens

Containers on several hosts that are not in the hosts' network each have the same private address (172.17.0.2), as do
virtual machines that were copied. The ranks meet, since their connections to the master leave through NAT; then each
rank connects to the address that the other one has told, and reaches itself or nobody: "Connection refused", or a hang.

## How to be sure

`hostname -I` on each host: the same address is in two of these lists. `ddpdoctor check` on all hosts compares the
addresses that gloo and NCCL would use; where one of them did not come to the meeting for that, `ddpdoctor explain` over
the logs of all hosts does. Where it is that of a bridge (docker0), which each host has for itself, the
host's own name leads to it (`getent hosts $(hostname)`), and the other hosts reach it at another interface.

## How to mend it

Where the hosts have another interface that the others reach, name it: `export GLOO_SOCKET_IFNAME=eth0`. Else start the
containers in the network of their host (`docker run --network=host`), or in an overlay network that gives each an
address of its own. Give a copied machine another address.

## Versions and sources

Holds for all versions. Source: docs.docker.com, "Bridge network driver"; gloo/transport/tcp/device.cc.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    HOST_LINE,
    Ailment,
    Evidence,
    Finding,
    Fix,
    Log,
    Place,
    Record,
    Severity,
    is_loopback,
    log_pattern,
    probe,
)

from ..._hosts.cluster import groups, hosts_to_compare

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster, Host


OK = "ok"
AILMENT = Ailment("DDP319", Severity.ERROR)
USES = (("gloo", "gloo"), ("nccl", "NCCL"))


@probe
def between_hosts(cluster: Cluster) -> Iterator[Finding]:
    """Compare the addresses that the libraries would use."""
    told: set[str] = set()
    for use, name in USES:
        for number, host in enumerate(cluster.hosts):
            address = getattr(host, use)
            if not address or is_loopback(address) or address in told:
                continue
            same = [each for each in cluster.hosts[number + 1 :] if getattr(each, use) == address]
            if not same or any(each.name == host.name for each in same):
                continue  # two checks of one host are told elsewhere
            told.add(address)
            hosts = [host, *same]
            if reached := _reached_elsewhere(cluster, address, use):
                yield _of_bridges(hosts, address, name, reached)
                continue
            yield _of_copies(hosts, address, name)


@log_pattern(HOST_LINE)
def of_hosts_that_did_not_meet(record: Record, log: Log) -> Iterator[Finding]:
    """Compare them by their lines: what the master answers to one goes to the other, which knows nothing of it."""
    for address, hosts in groups(hosts_to_compare(record, log), lambda host: host.gloo or None):
        if len(hosts) > 1 and not is_loopback(address):
            yield replace(_of_copies(hosts, address, "gloo"), place=replace(record.place, host=hosts[1].name))


def _of_copies(hosts: list[Host], address: str, name: str) -> Finding:
    return Finding(
        f"{', '.join(each.place for each in hosts[:4])} have the same address, {address}, for {name}",
        tuple(Evidence(_with_interface(each, address), "an address of its own", each.name) for each in hosts[:8]),
        Fix(
            "start containers in the network of their host; give copied machines an address each",
            command="docker run --network=host ...   # on each host",
        ),
        Place(host=hosts[1].name),
    )


def _with_interface(host: Host, address: str) -> str:
    name = host.interface_of(address) or (host.gloo_interface if host.gloo == address else host.nccl_interface)
    return f"{address} on {name}" if name else address


def _reached_elsewhere(cluster: Cluster, address: str, use: str) -> dict[str, str]:
    """Return the interface at which each of the hosts was reached instead, by name; empty where one was not."""
    found = {}
    sharing = [number for number, each in enumerate(cluster.hosts) if getattr(each, use) == address]
    for number in sharing:
        host = cluster.hosts[number]
        links = [each for each in cluster.links if each.target == number and each.address == address]
        others = {each.other for each in links if each.other_state == OK and host.interface_of(each.other)}
        interfaces = {host.interface_of(each) for each in others} - {host.interface_of(address)}
        if len(interfaces) != 1 or any(each.other_state not in {"", OK} for each in links):
            return {}
        found[host.name] = interfaces.pop()
    return found


def _of_bridges(hosts: list[Host], address: str, name: str, reached: dict[str, str]) -> Finding:
    """Return that each host has the address of a bridge of its own, and another one that the others reach."""
    used = ", ".join(sorted({each.interface_of(address) for each in hosts}))
    variable = f"{name.upper()}_SOCKET_IFNAME"
    by_host = "\n".join(f"export {variable}={reached[each.name]}   # on {each.name}" for each in hosts[:8])
    same = len(set(reached.values())) == 1
    command = f"export {variable}={next(iter(reached.values()))}   # on all hosts" if same else by_host
    return Finding(
        f"{', '.join(each.place for each in hosts[:4])} would each use {used} ({address}) for {name}, an address that "
        "each has of its own and no other host reaches",
        tuple(
            Evidence(f"{address} on {each.interface_of(address)}", f"the address on {reached[each.name]}", each.name)
            for each in hosts[:8]
        ),
        Fix("name the interface at which the other hosts reach this one", command=command),
        Place(host=hosts[1].name, variable=variable),
    )
