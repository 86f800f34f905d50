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

## Versions and sources

Holds for all versions. Measured with torch 2.13 and gloo between network namespaces. Sources: torch's
ProcessGroupGloo::createDefaultDevice; NCCL documentation, "NCCL_SOCKET_IFNAME".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Fault, Finding, Fix, Place, Severity, probe, suspects

from ..links._links import seen

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster


AILMENT = Ailment("DDP305", Severity.ERROR)
FIND = "ip -brief address show to"


@probe
def between_hosts(cluster: Cluster) -> Iterator[Finding]:
    """Compare what the library would use with the address by which the host came."""
    for suspect in suspects(cluster):
        if suspect.fault is not Fault.INTERFACE or suspect.host is None:
            continue
        host, link = cluster.hosts[suspect.host], suspect.links[0]
        variable = f"{link.use.upper()}_SOCKET_IFNAME"
        used = host.gloo_interface if link.use == "gloo" else host.nccl_interface
        better = host.interface_of(link.other)
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
