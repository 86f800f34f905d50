"""gloo or NCCL would use an interface that other hosts cannot reach.

docker0, virbr0 and their like are bridges inside this host, and loopback ends here. When NCCL or gloo takes one of
them for a training over several hosts, the peers connect to nowhere: "Call to connect failed: Connection timed out",
"connection refused", or silence until the time-out.

NCCL prefers InfiniBand, then any interface but loopback and docker*, in the kernel's order: virbr0 and br-* can come
first. gloo takes the address that the host name resolves to.

To be sure: `NCCL_DEBUG=INFO` prints "Bootstrap : Using <interface>:<address>".

In a log of NCCL a timed-out connection is this where the Bootstrap line shows a virtual or loopback interface; else a
firewall does the same. "Gloo connectFullMesh failed with ... no error", or with a time-out, is gloo's side of it.

The probe judges only where the environment says that several hosts take part. Source: NCCL documentation,
"NCCL_SOCKET_IFNAME"; torch's ProcessGroupGloo::createDefaultDevice. Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Doubt, Evidence, Finding, Fix, NotRun, Place, Severity
from ddpdoctor.check import Role, probe, sign
from ddpdoctor.explain.records import Log, Record
from ddpdoctor.probe.network import gloo_address, nccl_interface, several_hosts

from ._hosts import routable_interfaces
from ._peers import BOOTSTRAP, dead_end, hosts

if TYPE_CHECKING:
    from ddpdoctor.probe.facts import Facts

CARD = Card("DDP304", Severity.ERROR, known_as=("wrong-network-interface", "gloo-wrong-interface"))
CONSEQUENCES = ("nccl-system-error-unspecified", "remote-rank-died-or-network", "collective-timeout")
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
            yield Finding(
                f"{library} would use {taken.name} ({', '.join(taken.addresses)}), which other hosts cannot reach",
                (Evidence(f"{taken.name}, with {several}", better, "interfaces and environment"),),
                Fix("name the interface to the other hosts", command=f"export {variable}={better}"),
                Place(variable=variable, host=facts.network.hostname),
            )


@sign(NO_WAY, beside=(BOOTSTRAP,), explains=(*CONSEQUENCES, "firewall-blocks-nccl-ports"))
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


@sign(NO_WAY, role=Role.SYMPTOM, beside=(BOOTSTRAP,), explains=CONSEQUENCES)
def that_may_be_closed(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Without a virtual interface in sight a silent peer has two explanations."""
    if dead_end(log, match["peer"]) or match["why"] in ("No route to host", "Connection refused"):
        return
    peer = match["peer"] or "a peer"
    yield Finding(
        f"the connection to {peer} came to nothing: {match['why']}",
        (record.proof(match, "the peer answers"),),
        Fix("name the interface through which all hosts reach each other", command="export NCCL_SOCKET_IFNAME=eth0"),
        record.place,
        doubt=Doubt(
            (
                "NCCL's interface is not one that the hosts share",
                "a firewall drops packets to NCCL's ports",
                *(("the rank there has died, and nobody listens",) if "abort" in match["why"] else ()),
            ),
            f"ping -c1 {match['peer'] or 'PEER'}   # answers: a firewall; silent: the interface",
        ),
    )


@sign(
    r"Gloo connectFullMesh failed with (?P<said>[^\n]*)",
    role=Role.SYMPTOM,
    explains=("remote-rank-died-or-network",),
)
def that_gloo_took(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Gloo's peers could not reach each other; a refused connection tells more, and has checks of its own."""
    if "Connection refused" in match["said"]:
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
        doubt=Doubt(
            (
                "gloo's interface is one that the other hosts cannot reach",
                "a firewall closes gloo's ports",
                "the host name resolves to a loopback address",
            ),
            "getent hosts $(hostname); ip -brief address   # on each host",
        ),
    )
