"""Two hosts do not reach each other, or one does not reach the other, while all else between the hosts works.

## What happens

A rule of a firewall, a route, a security group or a switch port is wrong for one pair of hosts. Training hangs on all:
gloo's own messages name another pair, or none ("Connect timeout [none]", 584 s with torch 2.13), NCCL's only that a
connection failed. It works again as soon as one of the two hosts is left out, which is why people blame the host.

## How to be sure

`ddpdoctor check` on all hosts: in the matrix one cell is bad, or two that mirror each other.

## How to mend it

Look at the firewalls of the two hosts, and at the path between them: `ip route get ADDRESS`, `traceroute -T ADDRESS`,
in both directions. In a cloud, compare the security groups of the two.

## Versions and sources

Holds for all versions. Measured with torch 2.13 and gloo, four hosts in network namespaces.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Fault, Finding, Fix, Place, Severity, probe, suspects

from ._links import seen

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster


AILMENT = Ailment("DDP308", Severity.ERROR)
UNREACHABLE = "unreachable"
"""What the host that connects is told by its own kernel: it has no route, or what is next on it does not answer."""


@probe
def between_hosts(cluster: Cluster) -> Iterator[Finding]:
    """Find the pairs that nothing else explains."""
    for suspect in suspects(cluster):
        if suspect.fault not in (Fault.LINK, Fault.ONE_WAY):
            continue
        link = next((each for each in suspect.links if each.state == UNREACHABLE), suspect.links[0])
        source, target = cluster.hosts[link.source], cluster.hosts[link.target]
        both = suspect.fault is Fault.LINK
        no_way = link.state == UNREACHABLE
        yield Finding(
            f"{source.place} finds no way to {target.place}: its kernel says that it is unreachable"
            if no_way
            else f"{source.place} and {target.place} do not reach each other: {link.state}"
            if both
            else f"{source.place} does not reach {target.place}, which reaches it: {link.state}",
            tuple(Evidence(each, "ok", "TCP, from each host to each") for each in seen(cluster, suspect.links)),
            Fix(
                "look for a rule, or a route, about this pair on both hosts and between them",
                command=f"ip route get {target.gloo}; sudo nft list ruleset   # on {source.name}\n"
                f"ip route get {source.gloo}; sudo nft list ruleset   # on {target.name}",
            ),
            Place(host=source.name if both or no_way else target.name),
        )
