"""A firewall closes the ports that NCCL uses between the hosts.

## What happens

The rendezvous needs one known port, and works. NCCL then listens on ports that the kernel picks
(net.ipv4.ip_local_port_range, mostly 32768 to 60999), on each rank, for its bootstrap and for its sockets. A firewall
that opens only some ports lets the ranks find each other and stops them at the first collective. firewalld and many
iptables rules answer "No route to host" for a closed port of a host that answers pings; others drop the packets,
which ends in "Connection timed out".

## How to be sure

`nc -l 45000` on one host and `nc -vz HOST 45000` on another.

## How to mend it

Open the ephemeral range between the hosts of the training, or narrow the range on each host to what
is open.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: NCCL documentation, "Troubleshooting", "Networking issues"; torch issue 171179.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Severity, log_pattern

from ._peers import BOOTSTRAP, dead_end

AILMENT = Ailment("DDP336", Severity.ERROR)


@log_pattern(
    r"(?:[Cc]onnect to (?P<peer>[^\s<]+)<(?P<port>\d+)> (?:failed|returned)|Call to connect failed)"
    r"[^\n]{0,60}?No route to host",
    context=(BOOTSTRAP,),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """A firewall that rejects says "no route", and so does a network without one."""
    if dead_end(log, match["peer"]):
        return  # interface-unreachable
    peer = f"{match['peer']} port {match['port']}" if match["peer"] else "a peer's port"
    yield Finding(
        f"the connection to {peer} is rejected: No route to host",
        (record.proof(match, "NCCL's ports are open between the hosts"),),
        Fix(
            "name the interface that leads to the peer; where it is named, open the ephemeral ports between the hosts",
            command=f"ip route get {match['peer'] or 'PEER'}\n"
            "export NCCL_SOCKET_IFNAME=eth0   # the interface that the line above names\n"
            "sudo firewall-cmd --zone=trusted --add-source=10.0.0.0/24   # the network of the hosts\n"
            "sudo sysctl net.ipv4.ip_local_port_range='40000 40050'   # what is open",
        ),
        record.place,
        ambiguity=Ambiguity(
            ("a firewall on the peer rejects the port", "NCCL's interface is in a network without a route to the peer"),
            f"nc -vz {match['peer'] or 'PEER'} {match['port'] or '45000'}",
        ),
    )
