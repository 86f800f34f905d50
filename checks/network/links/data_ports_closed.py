"""A host's firewall closes the ports on which the ranks of other hosts connect to it.

## What happens

The port of the master is open, so the ranks meet; then gloo and NCCL connect every rank to others, each on a port that
the kernel picks (`net.ipv4.ip_local_port_range`). A firewall that opens MASTER_PORT alone drops or rejects these
connections. With gloo, one host gives up after minutes ("Connect timeout", 541 s with torch 2.13) and the other says
nothing; with NCCL, the first collective hangs or fails with "Call to connect failed".

## How to be sure

`ddpdoctor check` on all hosts, by the launcher of the training: each host opens a port that the kernel picks, each
other one connects to it, and the kernels' answers are compared. Where all fail to reach one host, it is that host.

## How to mend it

Let the hosts of the cluster in on all TCP ports, on the host that is named: `iptables -I INPUT -p tcp -s
10.0.0.0/24 -j ACCEPT`. For NCCL over InfiniBand the bootstrap needs TCP as well.

## Versions and sources

Holds for all versions of torch and NCCL. Measured with torch 2.13 and gloo between network namespaces. Sources: gloo's
gloo/transport/tcp/device.cc (binds to port 0); NVIDIA's NCCL documentation, "NCCL_SOCKET_IFNAME" and troubleshooting,
"Networking issues".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    OTHER_JOB,
    Ailment,
    Ambiguity,
    Evidence,
    Fault,
    Finding,
    Fix,
    Place,
    Severity,
    probe,
    suspects,
)

from ._links import seen
from ._nat import behind_nat, master_behind_nat

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster, Suspect


AILMENT = Ailment("DDP306", Severity.ERROR)


@probe
def between_hosts(cluster: Cluster) -> Iterator[Finding]:
    """Find hosts that nobody reaches, or that reach nobody."""
    for suspect in suspects(cluster):
        if suspect.fault in (Fault.INBOUND, Fault.OUTBOUND, Fault.CLOSED) and suspect.host is not None:
            nat = behind_nat(cluster, suspect) or master_behind_nat(cluster, suspect)
            yield nat or _finding(cluster, suspect, suspect.host)


@probe
def at_the_meeting(cluster: Cluster) -> Iterator[Finding]:
    """Report a master whose store answers while none of its other ports does."""
    host = cluster.hosts[0]
    tries = [each for each in cluster.tries if each.port == cluster.announced and each.ended != OTHER_JOB]
    if cluster.met or not cluster.announced or not tries:
        return
    yield Finding(
        f"{host.master} answers {host.name} on port {host.port}, where torchrun's store is, and on no other: "
        f"{tries[0].ended}",
        (Evidence(f"{tries[0].address}:{tries[0].port}: {tries[0].ended}", "open", f"connect(), on {host.name}"),),
        Fix(
            f"open all TCP ports between the hosts, on {host.master}",
            command=f"sudo iptables -I INPUT -p tcp -s {host.gloo} -j ACCEPT   # on {host.master}",
        ),
        Place(host=host.master),
    )


def _finding(cluster: Cluster, suspect: Suspect, number: int) -> Finding:
    host = cluster.hosts[number]
    outward = suspect.fault is Fault.OUTBOUND
    says = f"{host.place} lets no connection {'to other hosts out' if outward else 'of other hosts in'}"
    answers = " and ".join(sorted({link.state for link in suspect.links}))
    others = sorted({cluster.hosts[link.target if outward else link.source].gloo for link in suspect.links} - {""})
    chain, side = ("OUTPUT", "-d") if outward else ("INPUT", "-s")
    rule = f"sudo iptables -I {chain} -p tcp {side} {','.join(others)} -j ACCEPT   # on {host.name}"
    pair = len(cluster.hosts) == 2 and "silent" in answers  # noqa: PLR2004 - of two, either end can drop a packet
    if pair:
        other = cluster.hosts[1 - number]
        says = f"no connection of {other.name} to {host.place} comes about"
        rule += f"\nsudo iptables -I OUTPUT -p tcp -d {host.gloo} -j ACCEPT   # on {other.name}, where that one drops"
    return Finding(
        f"{says} but for the master's port: {answers}",
        tuple(Evidence(each, "ok", "TCP, from each host to each") for each in seen(cluster, suspect.links)),
        Fix(
            f"open all TCP ports between the hosts, on {host.name}" + (f" or on {other.name}" if pair else ""),
            command=rule,
        ),
        Place(host=host.name),
        ambiguity=Ambiguity(
            (f"{host.name} drops what comes in", f"{cluster.hosts[1 - number].name} drops what goes out"),
            f"sudo iptables -S; sudo nft list ruleset   # on {host.name}, then on {cluster.hosts[1 - number].name}",
        )
        if pair
        else None,
    )
