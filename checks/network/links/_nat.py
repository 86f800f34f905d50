"""A host behind a router that translates addresses: others see it at one that none of its interfaces has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.check import Ambiguity, Evidence, Finding, Fix, Place

from ._links import seen

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster, Suspect

OK, NO_WAY = "ok", "unreachable"
MOST = 64  # addresses that a host tells of itself


def behind_nat(cluster: Cluster, suspect: Suspect) -> Finding | None:
    """Return that a suspect's connections came from an address that it does not have; None where they did not."""
    if suspect.host is None:
        return None
    host = cluster.hosts[suspect.host]
    inward = [link for link in suspect.links if link.target == suspect.host]
    came = next((link.other for link in inward if link.other), "")
    if not came or not host.addresses or len(host.addresses) >= MOST or host.interface_of(came):
        return None
    link = next(link for link in inward if link.other)
    source = cluster.hosts[link.source]
    return Finding(
        f"{host.place} is behind a NAT: its connections come from {came}, which is no address of it, and no other host "
        f"reaches it at {link.address}, which {link.use} tells them: {link.state}",
        (
            Evidence(f"from {came}", "an address of its own", f"connections of {host.name}, at their other end"),
            Evidence(", ".join(each for each in host.addresses if not each.startswith("127.")), "", f"{host.name}"),
            *(Evidence(each, "ok", "TCP, from each host to each") for each in seen(cluster, inward)),
        ),
        _one_network(host.name),
        Place(host=host.name),
        ambiguity=None
        if link.other_state == OK
        else Ambiguity(
            (
                f"nothing leads to {link.address} from outside of that NAT",
                f"a firewall, or a network policy, drops what comes in at {link.address}",
            ),
            f"ip route get {link.address}; ping -c 3 {link.address}   # on {source.name}: no answer, by a gateway: NAT",
        ),
    )


def master_behind_nat(cluster: Cluster, suspect: Suspect) -> Finding | None:
    """Return that the others meet the first host at an address that it does not have, and none has a way to its own.

    A master at a translated address is well by itself, as long as what it tells the others of itself leads to it.
    """
    host = cluster.hosts[0]
    if suspect.host != 0 or not host.addresses or len(host.addresses) >= MOST:
        return None
    link = suspect.links[0]
    source = cluster.hosts[link.source]
    met_at = next((each for each in source.master_at.split() if not host.interface_of(each)), "")
    if any(each.state != NO_WAY or each.target for each in suspect.links) or not met_at:
        return None
    return Finding(
        f"{host.place} is behind a NAT: {source.name} meets it at {met_at}, which is no address of it, and has no way "
        f"to {link.address}, which {link.use} tells the others: {link.state}",
        (
            Evidence(f"from {source.name} at {met_at}", "an address of its own", "MASTER_ADDR, getaddrinfo there"),
            Evidence(", ".join(each for each in host.addresses if not each.startswith("127.")), "", f"{host.name}"),
            *(Evidence(each, "ok", "TCP, from each host to each") for each in seen(cluster, suspect.links)),
        ),
        _one_network(host.name),
        Place(host=host.name),
    )


def _one_network(name: str) -> Fix:
    return Fix(
        "gloo and NCCL need hosts that reach each other at their own addresses: put them into one network, or join "
        "them by a VPN and name its interface (GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME); start a container in the "
        "network of its host",
        command=f"docker run --network=host ...   # where {name} is a container",
    )
