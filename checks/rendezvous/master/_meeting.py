"""A host that did not meet the master: how its tries ended, and what is known here of the reason."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address, ip_interface, ip_network
from typing import TYPE_CHECKING

from ddpdoctor.check import Ambiguity, Evidence, Finding, Fix, Place, source_address

from ..._hosts.hosts import NOWHERE

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster, Host, Network, Try

SAID = {
    "refused": "answers, and nobody listens on port {port}",
    "filtered": "does not answer on port {port}",
    "unreachable": "cannot be reached: this host has no route to it",
}
CAUSES = {
    "refused": ("rank 0 has not started yet", "MASTER_PORT is not the port of rank 0", "MASTER_ADDR is another host"),
    "filtered": ("a firewall drops the packets", "MASTER_ADDR is an address that no host has"),
    "unreachable": ("MASTER_ADDR is of a network that this host is not part of", "this host's interface is down"),
}

MET_NOBODY = {
    "refused": (
        SAID["refused"],
        ("nothing was started there yet", "MASTER_PORT is another one there", "a firewall rejects the connection"),
    ),
    "silent": (SAID["filtered"], CAUSES["filtered"]),
    "unreachable": (SAID["unreachable"], CAUSES["unreachable"]),
    "another program": (
        "answers on port {port}, and it is another program than the check",
        (
            "the training runs there already",
            "another program has the port",
            "the check there has waited long enough (--wait), and was ending",
        ),
    ),
    "no store": (
        "has no store of torchrun on port {port}",
        ("the agent of torchrun there has ended", "the host that serves did not come"),
    ),
    "lost again": ("broke off", ("the check on the master was ended", "the connection is lost")),
}

HOW_TO_MEET = {
    "silent": "sudo iptables -I INPUT -p tcp --dport {port} -j ACCEPT   # on {master}",
    "unreachable": "ip -brief address   # on {master}, and on {host}: a network that both have",
    "": "ss -ltnp 'sport = :{port}'; echo $MASTER_PORT   # on {master}, while the check runs there",
}


def met_nobody(cluster: Cluster, network: Network) -> Iterator[Finding]:
    """Report how the last tries to meet the other hosts at the master's port ended."""
    host = cluster.hosts[0]
    tries = [each for each in cluster.tries if each.port == host.port and each.ended in MET_NOBODY]
    if cluster.met or not tries or not _shares_family(host, tries) or host.master_at in NOWHERE:
        return
    ended = tries[0].ended
    said, causes = MET_NOBODY[ended]
    master = tries[0].address
    cut_off = _down(network, master) if ended in {"unreachable", "silent"} else None
    if cut_off is None and ended == "unreachable":
        cut_off = _beyond_the_mask(network, master)
    if cut_off is None and ended in {"unreachable", "silent"}:
        cut_off = _from_another_network(network, master, host.port)
    if cut_off is not None:
        yield cut_off
        return
    back = (f"what {master} answers takes no way back to {source_address(master)}",) if ended == "silent" else ()
    yield Finding(
        f"{host.place} did not meet the master in {cluster.waited:.0f} s: {master} {said.format(port=host.port)}"
        + (f" ({tries[0].said})" if tries[0].said else ""),
        tuple(Evidence(f"{each.address}:{each.port}: {each.ended}", "the master", "connect()") for each in tries),
        Fix(
            f"give the master's address in a network that {host.name} is part of, on all hosts"
            if ended == "unreachable"
            else f"let {host.name} reach the port, on the master",
            command=HOW_TO_MEET.get(ended, HOW_TO_MEET[""]).format(port=host.port, master=host.master, host=host.name),
        ),
        Place(variable="MASTER_ADDR", host=host.name),
        ambiguity=Ambiguity(
            (*causes, *back, *_of_name(host)),
            f"nc -zv -w 5 {master} {host.port}   # on {host.name}, while the master waits"
            + (f"\nip route get {source_address(master)}; ss -tan state syn-recv   # on {master}" if back else "")
            + (f"\ngetent ahosts {host.master}   # on all hosts" if _of_name(host) else ""),
        ),
    )


def _down(network: Network, master: str) -> Finding | None:
    """Return that the interface of the master's network is down: its routes are gone with it, its address is not."""
    if ":" in master:
        return None
    there = {
        each.name: (each, within[0])
        for each in network.interfaces
        if (within := [one for one in each.networks if ip_address(master) in ip_interface(one).network])
    }
    if not there or any(each.up or each.loopback for each, _ in there.values()):
        return None
    interface, inside = next(iter(there.values()))
    host, state = network.hostname, "without a carrier" if interface.unplugged else "down"
    return Finding(
        f"{interface.name} of {host}, the interface to the master {master}, is {state}"
        + (": nothing is at the other end of its cable" if interface.unplugged else ""),
        (
            Evidence(f"{interface.name}: {inside}, {state}", "up", f"interfaces of {host}"),
            Evidence(f"{master}: not reached", "the master", "connect()"),
        ),
        Fix(
            "see to its cable, and to the port of the switch at the other end"
            if interface.unplugged
            else "bring it up; where it goes down again, see to its cable, its switch or its driver",
            command=f"ip -brief link show {interface.name}; sudo ethtool {interface.name}   # on {host}"
            if interface.unplugged
            else f"sudo ip link set {interface.name} up   # on {host}\nsudo dmesg -T | grep -i {interface.name}",
        ),
        Place(host=host),
    )


def _beyond_the_mask(network: Network, master: str) -> Finding | None:
    """Return that an interface has the master's neighbour for an address, and a mask that ends before the master."""
    if ":" in master:
        return None
    own = ip_address(master)
    for interface in network.interfaces:
        for text in interface.networks:
            here = ip_interface(text)
            if interface.loopback or own in here.network or own not in ip_network(f"{here.ip}/{USUAL}", strict=False):
                continue
            host = network.hostname
            return Finding(
                f"{host} has no route to the master {master}: {interface.name} has {text}, a network without it",
                (
                    Evidence(f"{interface.name}: {text}", f"a network with {master} in it", "addresses of this host"),
                    Evidence(f"{master}: unreachable", "the master", "connect()"),
                ),
                Fix(
                    f"give {interface.name} the mask that it has on the master",
                    command=f"ip -4 -brief address   # on {master}: the number behind the slash\n"
                    f"sudo ip address add {here.ip}/{USUAL} dev {interface.name}   # on {host}, with that number",
                ),
                Place(variable="MASTER_ADDR", host=host),
            )
    return None


def _from_another_network(network: Network, master: str, port: int) -> Finding | None:
    """Return that this host sends to the master from an address of another network, though it has one in its own."""
    source = source_address(master)
    if ":" in master or not source:
        return None
    for interface in network.interfaces:
        inside = [ip_interface(each) for each in interface.networks if ip_address(master) in ip_interface(each).network]
        if interface.loopback or not inside or any(ip_address(source) in each.network for each in inside):
            continue
        host, own = network.hostname, inside[0].ip
        return Finding(
            f"{host} sends to the master {master} from {source}, which is of another network, though {interface.name} "
            f"has {own} in the master's: the answers take another way, or a filter there (rp_filter) drops the packets",
            (
                Evidence(f"from {source}", f"from {own}", f"the route to {master}"),
                Evidence(f"{master}:{port} does not answer", "the master", "connect()"),
            ),
            Fix(
                f"take the route away that names {source}, or let it name {own}",
                command=f"ip route get {master}   # on {host}\n"
                f"sudo ip route replace {master}/32 dev {interface.name} src {own}   # on {host}",
            ),
            Place(variable="MASTER_ADDR", host=host),
        )
    return None


USUAL = 24
"""The length of a mask within which two addresses are taken for neighbours."""


def _of_name(host: Host) -> tuple[str, ...]:
    """Return what a name adds to the causes: each host looks it up by itself."""
    is_address = not host.master_at or host.master in host.master_at.split()
    return (
        () if is_address else (f"{host.master}, which is {host.master_at.split()[0]} here, is another host elsewhere",)
    )


def _shares_family(host: Host, tries: list[Try]) -> bool:
    """Whether the host has an address of the master's family; where it has none, that is another check's."""
    own = {":" in address for address in host.addresses if not address.lower().startswith(("127.", "::1", "fe80:"))}
    return not own or any((":" in each.address) in own for each in tries)
