"""The host at MASTER_ADDR cannot be reached from here.

## What happens

Ranks of this host wait for the store at MASTER_ADDR until their time-out: "The client socket has timed out after
300000ms". The errno tells how the connection fails: 110, no answer, as with a firewall that drops the packets; 113,
no route; 111, the host answers, and nobody listens on the port.

## How to be sure

Run `nc -zv "$MASTER_ADDR" "$MASTER_PORT"` from this host, while rank 0 is starting. ddpdoctor tries to connect to
each address of the master. No answer, or no route, is an error. "Nobody listens" is also what a host shows before
rank 0 has started: that is a note, with what tells the causes apart.

## How to mend it

- Read the output of rank 0 first. If rank 0 was not started, or failed before it opened the store, mend that.
- Nobody listens: `ss -ltnp` on the host of rank 0 shows its ports; correct MASTER_PORT, or MASTER_ADDR.
- No answer: open the port in the firewall of that host.
- No route: set MASTER_ADDR to an address in a network that this host is part of.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: connect(2); torch.distributed documentation, "TCP initialization".
"""

from __future__ import annotations

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
    log_pattern,
    probe,
    several_hosts,
    try_connect,
)

from ..._hosts.hosts import port
from ..._hosts.store import (
    C10D_STORE,
    ERRNO,
    GAVE_UP,
    REFUSED,
    is_name,
    is_number,
    is_placeholder,
    is_this_host,
)
from ._meeting import CAUSES, SAID, met_nobody

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster, Facts


AILMENT = Ailment("DDP355", Severity.ERROR)


@probe
def by_connecting(facts: Facts) -> Iterator[Finding]:
    """Try the port at each address of the master."""
    if several_hosts(facts.environ):
        raise NotRun("the meeting of the hosts tells")
    name = facts.environ.get("MASTER_ADDR")
    if not name:
        raise NotRun("MASTER_ADDR is not set")
    addresses = facts.network.resolve(name).addresses
    if not addresses:
        raise NotRun("MASTER_ADDR does not resolve")
    if any(facts.network.owns(address) for address in addresses):
        return  # this host reaches itself; whether the port is free is another check's
    number = port(facts.environ)
    answers = {address: try_connect(address, number) for address in addresses}
    if "open" in answers.values():
        return
    worst = "refused" if "refused" in answers.values() else next(iter(answers.values()))
    yield Finding(
        f"{name} {SAID[worst].format(port=number)}",
        tuple(Evidence(f"{address}:{number}: {answer}", "open", "connect()") for address, answer in answers.items()),
        Fix("open the port on that host, or correct the address", command=f"nc -zv {addresses[0]} {number}"),
        Place(variable="MASTER_ADDR", host=facts.network.hostname),
        severity=Severity.NOTE if worst == "refused" else None,
        ambiguity=Ambiguity(CAUSES[worst], f"ssh {addresses[0]} ss -ltnp 'sport = :{number}'"),
    )


@probe
def at_the_meeting(cluster: Cluster, facts: Facts) -> Iterator[Finding]:
    """Report how the last tries to meet the other hosts at the master's port ended."""
    yield from met_nobody(cluster, facts.network)


@log_pattern(r"RuntimeError: connect\(\) timed out\.")
def in_logs_of_older_versions(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read the words of torch before 1.13, which name no address."""
    yield Finding(
        "rank 0's store at MASTER_ADDR:MASTER_PORT was not reached",
        (record.proof(match, "the store of rank 0 answers"),),
        Fix(
            "see rank 0's own output first: if it never opened the store, its error is the one to fix",
            command='nc -zv -w 5 "$MASTER_ADDR" "$MASTER_PORT"   # from this host, while rank 0 is starting',
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "rank 0 was not started, or failed before it opened the store",
                "a firewall drops connections to the port",
                "MASTER_ADDR is not the address of rank 0's host",
            ),
            'nc -zv -w 5 "$MASTER_ADDR" "$MASTER_PORT"   # from this host',
        ),
    )


@log_pattern(
    r"(?:in init_process_group|in _create_tcp_store|in _create_c10d_store)\n[^\0]*?"
    r"\n(?:RuntimeError|(?:torch\.distributed\.)?DistNetworkError): Connection reset by peer",
    supersedes=("rdzv-host-not-recognised",),
)
def that_hangs_up(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Something took the connection and broke it off before the first answer."""
    yield Finding(
        "the address of the master takes the connection and breaks it off: what listens there is no store of torch",
        (record.proof(match, "the store of rank 0 answers"),),
        Fix(
            "see who listens on the port; in Kubernetes keep the service mesh away from the pods",
            command="ss -ltnp   # on the host of rank 0\n"
            "kubectl annotate pod POD sidecar.istio.io/inject=false   # in the template of the job",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "another program has the port (a proxy, a service mesh, another job)",
                "rank 0, or torchrun there, ended at that moment: its own log says why",
                "the hosts have versions of torch that do not understand each other",
            ),
            'nc -v "$MASTER_ADDR" "$MASTER_PORT"   # a store waits in silence, a proxy closes or talks',
        ),
    )


@log_pattern(GAVE_UP, context=(ERRNO, C10D_STORE))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """See that a client gave up, and what its host answered; names that lead nowhere are other checks'."""
    host = match[1]
    numbers = {found[2] for each, _ in log.find(ERRNO) for found in re.finditer(ERRNO, each.text)}
    if is_number(host) or is_placeholder(host) or is_this_host(host) or log.first(C10D_STORE):
        return
    refused = bool(numbers & REFUSED)
    if is_name(host) and numbers and not refused:
        return
    yield Finding(
        f"rank 0's store at {host}:{match[2]} was not reached"
        + (": the host answers, and nobody listens on the port" if refused else ""),
        (record.proof(match, "the store of rank 0 answers"),),
        Fix(
            "see rank 0's own output first: if it never opened the store, its error is the one to fix",
            command=f"ss -ltnp 'sport = :{match[2]}'   # on the host of rank 0, while this rank waits",
        ),
        record.place,
        ambiguity=Ambiguity(
            ("rank 0 was not started, or failed before it opened the store", "RANK=0 is given to no process")
            if refused
            else (
                "rank 0 was not started, or failed before it opened the store",
                "a firewall drops connections to the port",
                f"{host} is not the address of rank 0's host",
            ),
            f"nc -zv -w 5 {host} {match[2]}   # from here, while rank 0 is starting",
        ),
    )
