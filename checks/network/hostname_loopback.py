"""The name of this host resolves to a loopback address.

gloo advertises the address that the host name resolves to. If that is 127.0.1.1 (the entry that Debian and Ubuntu put
into /etc/hosts), the ranks of the other hosts are told to connect to themselves: "Connection refused,
remote=[127.0.1.1]" there, and here half an hour of silence until the time-out. On one host all is well.

To be sure: `getent hosts $(hostname)`, on each host.

An error where the environment says that several hosts take part and GLOO_SOCKET_IFNAME is not set; else a note.
Source: torch's ProcessGroupGloo::createDefaultDevice; torch.distributed documentation, "Choosing the network
interface to use". Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from ddpdoctor import Card, Evidence, Finding, Fix, NotRun, Place, Severity
from ddpdoctor.check import probe, sign
from ddpdoctor.explain.records import Log, Record
from ddpdoctor.probe.facts import Facts
from ddpdoctor.probe.network import is_loopback, several_hosts

from ._hosts import routable_interfaces
from ._peers import GLOO_REFUSED, loopback

CARD = Card("DDP301", Severity.ERROR, known_as=("gloo-hostname-loopback",))
MOST = 8  # hosts, each of which gets its line


@probe
def by_its_name(facts: Facts) -> Iterator[Finding]:
    """Look at what the host's own name resolves to."""
    network = facts.network
    if not network.own.addresses:
        raise NotRun("the host name does not resolve")
    if facts.environ.get("GLOO_SOCKET_IFNAME") or not all(map(is_loopback, network.own.addresses)):
        return
    interface = next(iter(routable_interfaces(network)), None)
    if interface is None:
        return  # a host without a network trains alone
    several = several_hosts(facts.environ)
    yield Finding(
        f"{network.hostname} resolves to {', '.join(network.own.addresses)}: other hosts could not reach its ranks",
        (
            Evidence(
                ", ".join(network.own.addresses), f"the address of {interface}", f"getaddrinfo({network.hostname})"
            ),
            Evidence(several or "no sign of a second host", "one host", "environment"),
        ),
        Fix("name the interface on each host", command=f"export GLOO_SOCKET_IFNAME={interface}"),
        Place(host=network.hostname),
        severity=Severity.ERROR if several else Severity.NOTE,
    )


@sign(GLOO_REFUSED, explains=("remote-rank-died-or-network", "interface-unreachable", "gloo-peer-refused"))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """A rank was told to connect to itself: the peer's host name is a loopback address there."""
    address = match["old"] or match["new"]
    if loopback(address):
        yield Finding(
            f"a peer told this rank to connect to {address}, which is this host itself: the peer's host name "
            "resolves to loopback",
            (record.proof(match, "the peer's address on the network"),),
            Fix("name the interface to the other hosts, on each host", command=_on_each_host(log.nodes)),
            record.place,
        )


def _on_each_host(nodes: tuple[str, ...]) -> str:
    """Give the line for each host that the logs name: the interface of its route to another one, by its name."""
    if len(nodes) < 2:  # noqa: PLR2004 - of one host alone, no other is known
        return "ip -brief address; export GLOO_SOCKET_IFNAME=eth0   # the interface that reaches the others"
    return "\n".join(
        f"export GLOO_SOCKET_IFNAME=$(ip route get $(getent ahostsv4 {shlex.quote(nodes[node == nodes[0]])} | "
        f"awk '{{print $1; exit}}') | grep -oP 'dev \\K\\S+')   # on {node}"
        for node in nodes[:MOST]
    )
