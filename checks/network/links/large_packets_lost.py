"""Large packets between hosts are lost, and small ones pass: the path's MTU is smaller than the interfaces'.

## What happens

The hosts' interfaces send packets of up to their MTU (1500 or 9000 bytes); a tunnel, a VPN or a switch between them
passes less, and the message that says so (ICMP "fragmentation needed") is filtered. Connections open, small messages
pass, the first megabyte hangs: with torch 2.13 and gloo for over 1,000 s. An all_reduce of one number succeeds, so a
"hello world" proves nothing.

## How to be sure

`ping -M do -s 1472 PEER` (for 1500) gets no answer where `ping -s 1000 PEER` does. `ddpdoctor check` on all hosts sends
32 kB in the largest segments and in small ones, and tells the largest packet that passes.

## How to mend it

Set the MTU that passes on the interfaces of both hosts: `ip link set dev eth0 mtu 1400`; in Kubernetes, in the network
plug-in's configuration. Or let ICMP through.

## Versions and sources

Holds for all versions. Measured with torch 2.13 and gloo between network namespaces. Source: RFC 2923, "TCP Problems
with Path MTU Discovery".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Fault, Finding, Fix, Place, Severity, probe, suspects

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster


AILMENT = Ailment("DDP312", Severity.ERROR)


@probe
def between_hosts(cluster: Cluster) -> Iterator[Finding]:
    """Find links that pass small segments alone."""
    for suspect in suspects(cluster):
        if suspect.fault is not Fault.MTU:
            continue
        link = min(suspect.links, key=lambda each: each.mtu or 0)
        pair = (link.target, link.source) if suspect.host is None else (suspect.host,)
        names = " and ".join(cluster.hosts[each].name for each in pair)
        commands = (
            f"sudo ip link set dev {cluster.hosts[each].gloo_interface or 'eth0'} mtu {link.mtu}   "
            f"# on {cluster.hosts[each].name}"
            for each in pair
        )
        yield Finding(
            f"packets of more than {link.mtu} bytes are lost between {names}"
            + (" and the other hosts" if suspect.host is not None and len(cluster.hosts) > 2 else ""),  # noqa: PLR2004 - a pair
            tuple(
                Evidence(
                    f"{cluster.hosts[each.source].name} to {cluster.hosts[each.target].name}: large segments lost, "
                    f"packets of {each.mtu} bytes pass",
                    "the largest segment passes",
                    "TCP, 32 kB",
                )
                for each in suspect.links
            ),
            Fix("set the MTU that passes", command="\n".join(commands)),
            Place(host=cluster.hosts[pair[0]].name),
        )
