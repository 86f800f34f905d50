"""Two hosts would use addresses of different IP families, IPv4 and IPv6.

## What happens

gloo and NCCL use one address of each host. Where the name of one host resolves to an IPv6 address and that of another
to IPv4 only, the second cannot connect to the first: torch warns without end, and nothing starts.

## How to be sure

`getent ahosts $(hostname)` on each host. `ddpdoctor check` on all hosts compares the addresses that gloo and NCCL would
use.

## How to mend it

Name the interface, and give it an address of the same family on all hosts; or put the host's IPv4 address beside its
name in /etc/hosts. For NCCL: `NCCL_SOCKET_FAMILY=AF_INET`.

## Versions and sources

Holds for all versions. Measured with torch 2.13 between network namespaces. Sources: torch's ProcessGroupGloo; NCCL
documentation, "NCCL_SOCKET_FAMILY".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Fault, Finding, Fix, Place, Severity, probe, suspects

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster


AILMENT = Ailment("DDP307", Severity.ERROR)


@probe
def between_hosts(cluster: Cluster) -> Iterator[Finding]:
    """Compare the families of the addresses that the hosts would use."""
    for suspect in suspects(cluster):
        if suspect.fault is not Fault.FAMILY or suspect.host is None:
            continue
        host, link = cluster.hosts[suspect.host], suspect.links[0]
        source = cluster.hosts[link.source]
        own = getattr(source, link.use.lower())
        yield Finding(
            f"{host.place} would use {link.address} for {link.use}, and {source.name} {own}: not the same IP family",
            (Evidence(f"{host.name}: {link.address}; {source.name}: {own}", "one family", f"what {link.use} uses"),),
            Fix(
                "let the names of all hosts resolve to addresses of one family",
                command=f"getent ahosts {host.name}   # on {host.name}; then correct its line in /etc/hosts",
            ),
            Place(host=host.name),
        )
