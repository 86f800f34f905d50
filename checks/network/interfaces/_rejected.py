"""gloo's connections that a neighbour refuses as if there were no route to it."""

from __future__ import annotations

import re
from ipaddress import ip_address, ip_network

from ddpdoctor.check import Ambiguity, Evidence, Finding, Fix, Log, Place, Record

LOCAL = r"local=\[(?P<local>[^\]\s]+)\]:\d+, remote=\[(?P<remote>[^\]\s]+)\]:\d+[^\n]{0,80}No route to host"
"""What gloo says of each try: both ends."""


def rejected_by_a_neighbour(record: Record, match: re.Match[str], log: Log) -> Finding | None:
    """Return that a neighbour's firewall rejects the connection; None where the two are of different networks.

    The kernel has no route to a neighbour only where nobody there answers for its address, or where it is told so by
    the neighbour: iptables' and firewalld's REJECT say "host prohibited".
    """
    tried = re.search(LOCAL, record.text) or next((found for _, found in log.find(LOCAL)), None)
    if tried is None or tried["remote"] not in record.text or not _are_neighbours(tried["local"], tried["remote"]):
        return None
    local, remote = tried["local"], tried["remote"]
    return Finding(
        f"{remote} is refused to {local} as if there were no route to it, and both are of one network: so "
        f"answers a firewall on {remote} that rejects gloo's ports",
        (record.proof(match, "a connection"), Evidence(f"{local} to {remote}: No route to host", "", "gloo's tries")),
        Fix(
            f"open all TCP ports between the hosts, on {remote}",
            command=f"sudo firewall-cmd --zone=trusted --add-source={local}   # on {remote}, with firewalld\n"
            f"sudo iptables -I INPUT -p tcp -s {local} -j ACCEPT   # on {remote}, else",
        ),
        Place(rank=record.rank, host=record.node),
        ambiguity=Ambiguity(
            (
                f"a firewall on {remote} rejects the connection",
                f"no host has {remote} any more, or it is down: nobody answers for it on the network",
            ),
            f"ping -c 3 {remote}   # on {local}\nsudo nft list ruleset | grep -i reject   # on {remote}",
        ),
    )


def _are_neighbours(one: str, other: str) -> bool:
    """Whether two addresses are of one usual network: /24, or /64 of IPv6."""
    try:
        first, second = ip_address(one), ip_address(other)
    except ValueError:
        return False
    length = 24 if first.version == 4 else 64  # noqa: PLR2004 - IPv4
    return first.version == second.version and second in ip_network(f"{first}/{length}", strict=False)
