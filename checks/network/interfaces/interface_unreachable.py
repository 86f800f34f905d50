"""gloo or NCCL would use an interface that other hosts cannot reach.

## What happens

docker0, virbr0 and similar interfaces are bridges inside this host, and loopback does not leave it. When NCCL or gloo
takes one of them for a training over several hosts, the peers cannot connect: "Call to connect failed: Connection
timed out", "connection refused", or a wait without a message until the time-out.

NCCL prefers InfiniBand, then any interface but loopback and docker*, in the kernel's order: virbr0 and br-* can come
first. gloo takes the address that the host name resolves to. "Gloo connectFullMesh failed with ... no error", or with
a time-out, is the same fault on the side of gloo.

## How to be sure

With `NCCL_DEBUG=INFO` NCCL prints "Bootstrap : Using <interface>:<address>". A connection that timed out is this
fault where that line shows a virtual or a loopback interface; else a firewall gives the same message. `ping -c1 PEER`
tells them apart: an answer points to a firewall, no answer to the interface. ddpdoctor follows the choice of gloo and
NCCL on this host, and judges it only where the environment says that several hosts take part. In a file (`ddpdoctor
lint`) of several nodes it finds loopback, named as the interface.

## How to mend it

On each host name the interface that reaches the other hosts, for both libraries: `export NCCL_SOCKET_IFNAME=eth0` and
`export GLOO_SOCKET_IFNAME=eth0` (`ip -brief address` lists the interfaces). Containers need the host's network:
`docker run --network host ...`.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: NCCL documentation, "NCCL_SOCKET_IFNAME"; torch's
ProcessGroupGloo::createDefaultDevice.
"""

from __future__ import annotations

import ipaddress
import re
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
    Severity,
    gloo_address,
    lint,
    log_pattern,
    nccl_interface,
    probe,
    several_hosts,
)

from ..._hosts.hosts import routable_interfaces
from ...launching._launchers import nodes
from ..links.peers._peers import BOOTSTRAP, dead_end, hosts
from ._rejected import LOCAL, rejected_by_a_neighbour

if TYPE_CHECKING:
    from ddpdoctor.check import Facts, LaunchScript

AILMENT = Ailment("DDP304", Severity.ERROR)
INTERFACES = {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"}
# "Software caused connection abort" is what a second connect says of a first that failed.
NO_WAY = (
    r"(?:(?:[Cc]onnect to (?P<peer>[^\s<]+)<\d+> (?:failed|returned)|Call to connect (?:failed|timeout))[^\n]{0,60}?"
    r"|socket(?:Start|Poll)Connect: )"
    r"(?P<why>Connection timed out|Network is unreachable|No route to host|Connection refused"
    r"|Software caused connection abort|exceeded timeouts)(?!, retrying)"
)


@probe
def that_would_be_taken(facts: Facts) -> Iterator[Finding]:
    """Follow gloo's and NCCL's choice."""
    several = several_hosts(facts.environ)
    if not several:
        raise NotRun("the environment shows one host only")
    better = next(iter(routable_interfaces(facts.network)), None)
    nccl = nccl_interface(facts.network, facts.environ.get("NCCL_SOCKET_IFNAME")) if facts.gpus.devices else None
    address = gloo_address(facts.network, facts.environ.get("GLOO_SOCKET_IFNAME"))
    gloo = next((each for each in facts.network.interfaces if address in each.addresses), None)
    for variable, taken in (("NCCL_SOCKET_IFNAME", nccl), ("GLOO_SOCKET_IFNAME", gloo)):
        # A host name that resolves to loopback has a check of its own.
        named = bool(facts.environ.get(variable))
        if taken is not None and better and (taken.virtual or (taken.loopback and (named or variable[0] == "N"))):
            library = "NCCL" if variable[0] == "N" else "gloo"
            by_name = library == "gloo" and not named
            entries = [each for each in facts.network.entries if by_name and f" {address} " in each]
            yield Finding(
                f"{library} would use {taken.name} ({', '.join(taken.addresses)}), which other hosts cannot reach",
                (
                    Evidence(f"{taken.name}, with {several}", better, "interfaces and environment"),
                    *(Evidence(each, f"an address of {better}", "the name of this host") for each in entries),
                ),
                Fix("name the interface to the other hosts", command=f"export {variable}={better}"),
                Place(variable=variable, host=facts.network.hostname),
            )


@lint
def in_launch_script(launch: LaunchScript) -> Iterator[Finding]:
    """Look for loopback as the interface of a training of several nodes."""
    headed = launch.count("nodes") or 1
    several = max([headed, *(nodes(launch, each) or 1 for each in launch.launches)])
    for setting in launch.settings:
        command, value = setting.command, setting.value
        if several < 2 or setting.name not in INTERFACES or value is None:  # noqa: PLR2004 - several
            continue
        if value.text.strip("=") == "lo" and (command is None or command.is_certain):
            yield Finding(
                f"{several} nodes, and {setting.name} is lo, which does not leave its host",
                (launch.seen(setting.line, "the interface to the other hosts"),),
                Fix(
                    "name the interface that reaches the other nodes, or leave the variable out",
                    command=f"ip -brief address   # on a node\nexport {setting.name}=eth0",
                ),
                launch.place(setting.line, setting.begin),
            )


@log_pattern(NO_WAY, context=(BOOTSTRAP,))
def that_nccl_took(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Blame the interface where the log shows one that ends in its host."""
    shown = dead_end(log, match["peer"])
    # On one host loopback is right, and who refuses there has died.
    if shown and (match["why"] != "Connection refused" or len(hosts(log)) > 1):
        used, found = shown
        yield Finding(
            f"NCCL uses {found[1]} ({found[2]}), which other hosts cannot reach: {match['why']}",
            (record.proof(match, "the peers answer"), used.proof(found, "the interface to the other hosts")),
            Fix("name the interface to the other hosts", command="ip -brief address; export NCCL_SOCKET_IFNAME=eth0"),
            Place(variable="NCCL_SOCKET_IFNAME", rank=record.rank, host=record.node),
        )


def _is_link_local(peer: str | None) -> bool:
    try:
        return peer is not None and ipaddress.ip_address(peer).is_link_local
    except ValueError:
        return False


@log_pattern(NO_WAY, context=(BOOTSTRAP,))
def that_has_no_address(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """An interface that nobody has set up has an address of its own making, which no router knows."""
    if _is_link_local(match["peer"]) and not dead_end(log, match["peer"]):
        interface = match["peer"].partition("%")[2]
        yield Finding(
            f"a rank gave a link-local address{f' of {interface}' if interface else ''} as its own "
            f"({match['peer']}), which leads to no other network: {match['why']}",
            (record.proof(match, "an address of the network that joins the hosts"),),
            Fix(
                "name the interface to the other hosts, on each host",
                command="ip -brief address\nexport NCCL_SOCKET_IFNAME=eth0 NCCL_SOCKET_FAMILY=AF_INET",
            ),
            Place(variable="NCCL_SOCKET_IFNAME", rank=record.rank, host=record.node),
        )


BRIDGE = "172.17."  # what Docker gives to containers unless it is told otherwise


def _of_docker(record: Record, match: re.Match[str], peer: str) -> Finding:
    return Finding(
        f"the connection to {peer} came to nothing ({match['why']}): as a rule that is an address within Docker, which "
        "ends at its host",
        (record.proof(match, "an address that the hosts share"),),
        Fix(
            "give the containers of several hosts the network of their host; ports that are passed on do not suffice",
            command="docker run --network=host --gpus all --ipc=host ...",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the peer's container is on another host, and has Docker's own network (bridge)",
                "both are on one host, or Docker has no part in it: the rank has ended, or a firewall is between",
            ),
            f"ip -brief address | grep '{peer}'   # on the peer's host, outside of Docker: nothing there, the first",
        ),
    )


@log_pattern(NO_WAY, context=(BOOTSTRAP,))
def that_may_be_closed(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Without a virtual interface in sight a silent peer has two explanations."""
    if dead_end(log, match["peer"]) or match["why"] in ("No route to host", "Connection refused"):
        return
    if _is_link_local(match["peer"]):
        return
    peer = match["peer"] or "a peer"
    if peer.startswith(BRIDGE):
        yield _of_docker(record, match, peer)
        return
    yield Finding(
        f"the connection to {peer} came to nothing: {match['why']}",
        (record.proof(match, "the peer answers"),),
        Fix("name the interface through which all hosts reach each other", command="export NCCL_SOCKET_IFNAME=eth0"),
        record.place,
        ambiguity=Ambiguity(
            (
                "NCCL's interface is not one that the hosts share",
                "a firewall drops packets to NCCL's ports",
                "the rank there has died, and nobody listens"
                if "abort" in match["why"]
                else "the host or pod there is gone: it ended, or was started anew with another address",
            ),
            f"ping -c1 {match['peer'] or 'PEER'}   # answers: a firewall; silent: the interface",
        ),
    )


@log_pattern(
    r"Gloo connectFullMesh failed with (?P<said>[^\n]*)"
    r"|gloo/transport/tcp/pair\.(?:cc|h):\d+\] Connect timeout \[[^\]\n]+\]:\d+",
    context=(LOCAL,),
)
def that_gloo_took(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Gloo's peers could not reach each other; a refused connection tells more, and has checks of its own."""
    if "Connection refused" in (match["said"] or ""):
        return
    if "No route to host" in (match["said"] or "") and (rejected := rejected_by_a_neighbour(record, match, log)):
        yield rejected
        return
    yield Finding(
        "the ranks cannot reach each other at the addresses that gloo gave them",
        (record.proof(match, "every rank connects to every other"),),
        Fix(
            "name the interface to the other hosts; containers need the host's network",
            command="export GLOO_SOCKET_IFNAME=eth0   # on each host, the interface that reaches the others\n"
            "docker run --network host ...",
        ),
        Place(variable="GLOO_SOCKET_IFNAME", rank=record.rank, host=record.node),
        ambiguity=Ambiguity(
            (
                "gloo's interface is one that the other hosts cannot reach",
                "a firewall closes gloo's ports",
                "the host name resolves to a loopback address",
            ),
            "getent hosts $(hostname); ip -brief address   # on each host",
        ),
    )
