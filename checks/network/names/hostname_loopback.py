"""The name of this host resolves to a loopback address.

## What happens

gloo advertises the address that the host name resolves to. If that is 127.0.1.1 (the entry that Debian and Ubuntu put
into /etc/hosts), the ranks of the other hosts connect to themselves: they fail with "Connection refused,
remote=[127.0.1.1]", and the ranks of this host wait half an hour, until the time-out. A training on one host is not
affected.

On one host the same message has other causes: a peer that has ended, or a store that outlived it (file://, an elastic
restart). In logs the cause is certain only where they show a second host, and no error before.

## How to be sure

Run `getent hosts $(hostname)` on each host: it is to print an address on the network, not 127.0.0.1 or 127.0.1.1.
ddpdoctor looks the name up in the same way, where the environment says that several hosts take part and
GLOO_SOCKET_IFNAME is not set.

## How to mend it

Best first: on each host name the interface that reaches the others, for example `export GLOO_SOCKET_IFNAME=eth0`
(`ip -brief address` lists them; the names can differ between hosts). Or correct /etc/hosts, so that the host name has
its address on the network. On one host: mend the rank that ended first and start again; with
`init_method="file://..."` delete the file before.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch's ProcessGroupGloo::createDefaultDevice; torch.distributed documentation,
"Choosing the network interface to use".
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    Log,
    NotRun,
    Place,
    Record,
    Role,
    Severity,
    is_loopback,
    log_pattern,
    probe,
    several_hosts,
)

from ..._hosts.hosts import routable_interfaces
from ..links.peers._peers import GLOO_REFUSED, loopback

if TYPE_CHECKING:
    from ddpdoctor.check import Facts

AILMENT = Ailment("DDP301", Severity.ERROR)
# What torchrun says of several nodes: in its launch configs, its rendezvous, and how it was called.
SEVERAL = r"(?:\bmax_nodes\s*: |\bgroup_world_size=|--nnodes[= ])(?!1\b)\d+|--node[_-]rank[= ][1-9]"
MOST = 8  # hosts, each of which gets its line
ONE_HOST = "no launcher's variable says that several hosts take part"


@probe
def by_its_name(facts: Facts) -> Iterator[Finding]:
    """Look at what the host's own name resolves to."""
    network, several = facts.network, several_hosts(facts.environ)
    if not network.own.addresses:
        raise NotRun("the host name does not resolve")
    if not several:
        raise NotRun(ONE_HOST)
    if facts.environ.get("GLOO_SOCKET_IFNAME") or not all(map(is_loopback, network.own.addresses)):
        return
    interface = next(iter(routable_interfaces(network)), None)
    if interface is None:
        return  # a host without a network trains alone
    yield Finding(
        f"{network.hostname} resolves to {', '.join(network.own.addresses)}: other hosts cannot reach its ranks",
        (
            Evidence(
                ", ".join(network.own.addresses), f"the address of {interface}", f"getaddrinfo({network.hostname})"
            ),
            Evidence(several, "", "environment"),
        ),
        Fix("name the interface on each host", command=f"export GLOO_SOCKET_IFNAME={interface}"),
        Place(host=network.hostname),
    )


@probe
def by_an_address_of_nobody_here(facts: Facts) -> Iterator[Finding]:
    """Look whether the name leads to an address of this host at all: gloo takes loopback where it does not."""
    network = facts.network
    several = several_hosts(facts.environ)
    if not several:
        raise NotRun(ONE_HOST)
    named = network.own.addresses
    if not named or facts.environ.get("GLOO_SOCKET_IFNAME") or any(map(network.owns, named)):
        return
    interface = next(iter(routable_interfaces(network)), None)
    if interface is not None:
        yield Finding(
            f"{network.hostname} resolves to {', '.join(named)}, and no interface of this host has that address: gloo "
            "tells the other hosts to come to 127.0.0.1",
            (
                Evidence(", ".join(named), f"the address of {interface}", f"getaddrinfo({network.hostname})"),
                Evidence(several, "", "environment"),
            ),
            Fix("name the interface on this host", command=f"export GLOO_SOCKET_IFNAME={interface}"),
            Place(host=network.hostname),
        )


@log_pattern(GLOO_REFUSED, context=(SEVERAL,))
def between_hosts(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """A rank was told to connect to itself: the peer's host name is a loopback address there."""
    address = match["old"] or match["new"]
    if loopback(address) and (others := _other_hosts(log)) and not _failed_before(record, log):
        yield Finding(
            f"a peer told this rank to connect to {address}, which is this host itself: the peer's host name "
            "resolves to loopback",
            (record.proof(match, "the peer's address on the network"), others),
            Fix("name the interface to the other hosts, on each host", command=_on_each_host(log.nodes)),
            record.place,
        )


@log_pattern(GLOO_REFUSED, context=(SEVERAL,))
def on_one_host_or_several(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """On one host a loopback address is right, and nobody listens there any more."""
    address = match["old"] or match["new"]
    if not loopback(address) or bool(_other_hosts(log)) != _failed_before(record, log):
        return
    yield Finding(
        f"nobody listens at {address}, the loopback address that a peer told this rank to connect to",
        (record.proof(match, "the peer listens until all are connected"),),
        Fix(
            "on several hosts: name the interface to the others, on each; on one: mend the rank that ended first, and "
            "start anew (with init_method='file://...': delete the file)",
            command=_on_each_host(log.nodes),
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "several hosts take part, and the name of the peer's host resolves to loopback there",
                "one host: the peer has ended, and its error stands further up or in its own log",
                "one host: the address is of an earlier start, from a store that outlived it (file://, a restart)",
            ),
            "getent hosts $(hostname)   # on each host; where there is one only, its answer does not matter",
        ),
    )


@log_pattern(GLOO_REFUSED, role=Role.CONSEQUENCE, context=(SEVERAL,))
def after_a_failure(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """On one host, and a rank had an error before: who is started again is told the address of a peer that is gone."""
    address = match["old"] or match["new"]
    if loopback(address) and not _other_hosts(log) and _failed_before(record, log):
        yield Finding(
            f"nobody listens at {address} any more: the rank that did has ended before",
            (record.proof(match, "the peer listens until all are connected"),),
            Fix("mend what ended the rank before", command="ddpdoctor explain LOGS_OF_ALL_RANKS"),
            record.place,
        )


def _other_hosts(log: Log) -> Evidence | None:
    """Quote what says that several hosts take part; None where nothing does."""
    if len(log.nodes) > 1:
        return Evidence(f"the hosts {', '.join(log.nodes[:MOST])}", source="the logs")
    found = log.first(SEVERAL)
    return found[0].proof(found[1]) if found else None


def _failed_before(record: Record, log: Log) -> bool:
    """Whether a rank had an error of its own before: then the ranks had been connected, or it never came."""
    earlier = log.records[: log.records.index(record)]
    return any(each.error and not re.search(GLOO_REFUSED, each.text) for each in earlier)


def _on_each_host(nodes: tuple[str, ...]) -> str:
    """Return the line for each host that the logs name: the interface of its route to another one, by its name."""
    if len(nodes) < 2:  # noqa: PLR2004 - of one host alone, no other is known
        return "ip -brief address; export GLOO_SOCKET_IFNAME=eth0   # the interface that reaches the others"
    return "\n".join(
        f"export GLOO_SOCKET_IFNAME=$(ip route get $(getent ahostsv4 {shlex.quote(nodes[node == nodes[0]])} | "
        f"awk '{{print $1; exit}}') | grep -oP 'dev \\K\\S+')   # on {node}"
        for node in nodes[:MOST]
    )
