"""A host would use an interface that the other hosts do not reach.

## What happens

gloo tells the other ranks the address of GLOO_SOCKET_IFNAME, else the one that the host's own name resolves to; NCCL
takes NCCL_SOCKET_IFNAME, else the first interface that is neither loopback nor docker. Where that is a bridge of
containers, a second network card without a route, or one that is down, the others connect to an address that leads
nowhere: after 13 to 29 s one host fails ("No route to host", "Connection refused"), and the others go on waiting.

## How to be sure

`ddpdoctor check` on all hosts: the others fail to reach the host at the address of its interface, and reach it at the
one from which it came to the master.

## How to mend it

Name the interface that reaches the others, on that host: `export GLOO_SOCKET_IFNAME=eth0 NCCL_SOCKET_IFNAME=eth0`.
Where it is used already, and one family of its addresses is blocked on the way (IPv6, mostly), name the interface and
give an address of the other family for the master, on all hosts: a name whose first address is of the blocked family
leads there again. A host behind a NAT cannot be reached at its own address: that needs one network, or a VPN.

## Versions and sources

Holds for all versions. Measured with torch 2.13 and gloo between network namespaces. Sources: torch's
ProcessGroupGloo::createDefaultDevice; NCCL documentation, "NCCL_SOCKET_IFNAME".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Fault, Finding, Fix, Place, Severity, probe, suspects

from ..links._links import seen
from ..links._nat import behind_nat

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster, Host, Suspect


AILMENT = Ailment("DDP305", Severity.ERROR, supersedes=("interface-unreachable",))
FIND = "ip -brief address show to"


@probe
def between_hosts(cluster: Cluster) -> Iterator[Finding]:
    """Compare what the library would use with the address by which the host came."""
    for suspect in suspects(cluster):
        if suspect.fault is not Fault.INTERFACE or suspect.host is None:
            continue
        if translated := behind_nat(cluster, suspect):
            yield translated
            continue
        host, link = cluster.hosts[suspect.host], suspect.links[0]
        variable = f"{link.use.upper()}_SOCKET_IFNAME"
        used = host.gloo_interface if link.use == "gloo" else host.nccl_interface
        better = host.interface_of(link.other)
        if used and better == used:
            yield _same_interface(cluster, suspect, host, used)
            continue
        yield Finding(
            f"{host.place} would use {used or 'an interface'} ({link.address}) for {link.use}, which the other hosts "
            f"do not reach: {link.state}",
            (
                *(Evidence(each, "ok", "TCP, from each host to each") for each in seen(cluster, suspect.links)),
                Evidence(f"{link.other}: ok", f"{link.use} uses it", f"the address from which {host.name} came"),
            ),
            Fix(
                f"name the interface of {link.other}, on {host.name}",
                command=f"export {variable}={better or f'$({FIND} {link.other})'}   # on {host.name}",
            ),
            Place(host=host.name, variable=variable),
        )


def _same_interface(cluster: Cluster, suspect: Suspect, host: Host, used: str) -> Finding:
    """Return that one address of an interface leads to nobody, and another one does: of one family, or of both."""
    link = suspect.links[0]
    families = {":" in link.address, ":" in link.other}
    silent, well = ("IPv6", "IPv4") if ":" in link.address else ("IPv4", "IPv6")
    of_family = link.use == "gloo" and len(families) > 1 and ":" in link.address
    master = next((each.other for each in cluster.links if each.target == 0 and each.other), "")
    master = master or next((each for each in cluster.hosts[0].addresses if ":" not in each), "HOST0")
    return Finding(
        f"{host.place} would use {link.address} for {link.use}, which the other hosts do not reach ({link.state}), and "
        f"they reach it at {link.other}, of the same interface, {used}"
        + (f": {silent} is blocked between the hosts, and {well} is not" if len(families) > 1 else ""),
        (
            *(Evidence(each, "ok", "TCP, from each host to each") for each in seen(cluster, suspect.links)),
            Evidence(f"{link.other}: ok", f"{link.use} uses it", f"the address from which {host.name} came"),
        ),
        Fix(
            "have the master's address and gloo's be of IPv4, on all hosts: of a named interface gloo takes the IPv4 "
            f"address; or open {silent} between the hosts",
            command=f"export MASTER_ADDR={master} GLOO_SOCKET_IFNAME={used}   # both, on {host.name}; and "
            f"--master_addr={master} to torchrun, on all hosts",
        )
        if of_family
        else Fix(
            "have NCCL use IPv4, on all hosts; or open IPv6 between them",
            command=f"export NCCL_SOCKET_FAMILY=AF_INET   # on {host.name}, and on all others",
        )
        if link.use == "NCCL" and len(families) > 1 and ":" in link.address
        else Fix(
            f"have the name {host.name} lead to {link.other}, on {host.name}, or open the way to {link.address}",
            command=f"getent ahosts {host.name}   # on {host.name}; then correct the name's line in /etc/hosts",
        ),
        Place(host=host.name, variable=f"{link.use.upper()}_SOCKET_IFNAME"),
    )
