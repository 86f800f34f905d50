"""The hosts do not agree on the master's address or port.

## What happens

MASTER_PORT or MASTER_ADDR is not the same on all hosts. Those that have the wrong one connect to a port on which nobody
listens, and try again until the time is up: for half an hour with torch 2.13, and both sides are silent.

## How to be sure

`ddpdoctor check` on all hosts also looks for the master at 29500 and at the ports beside the one that it was given.
Where they do not find each other, it prints a line `ddpdoctor-host:` on each host, and `ddpdoctor explain LOG LOG`
compares them.

## How to mend it

Set the same MASTER_ADDR and MASTER_PORT on all hosts (torchrun: `--master_addr`, `--master_port`, or
`--rdzv_endpoint=HOST:PORT`).

## Versions and sources

Holds for all versions. Measured with torch 2.13 between network namespaces.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    HOST_LINE,
    RANKS_LINE,
    Ailment,
    Evidence,
    Finding,
    Fix,
    Host,
    Log,
    Place,
    Record,
    Severity,
    is_loopback,
    joining_from,
    log_pattern,
    probe,
)

from ..._hosts.cluster import groups, hosts_to_compare
from ..missing._of_hosts import CAME

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster


AILMENT = Ailment("DDP368", Severity.ERROR)


@probe
def at_the_meeting(cluster: Cluster) -> Iterator[Finding]:
    """Compare the ports of those who found each other all the same."""
    yield from _differ(cluster.hosts, "port", "MASTER_PORT")


@log_pattern(HOST_LINE)
def in_logs(record: Record, log: Log) -> Iterator[Finding]:
    """Compare the lines of hosts that did not meet."""
    if hosts := hosts_to_compare(record, log):
        yield from _differ(hosts, "port", "MASTER_PORT")
        if all(host.master_at for host in hosts):
            yield from _lead_elsewhere(hosts)
        else:
            yield from _differ(hosts, "master", "MASTER_ADDR")


@log_pattern(RANKS_LINE, context=(CAME,))
def as_ranks_waited(record: Record, log: Log) -> Iterator[Finding]:
    """Compare the ports at which the ranks of each host wait in init_process_group, as the watch there has told it."""
    told = list(log.find(RANKS_LINE))
    if told[0][0] is not record or log.first(CAME):
        return
    waits = [
        (rank, host, address)
        for host, (_, ranks) in joining_from(match[1] for _, match in told).items()
        for rank, address in sorted(ranks.items())
        if address.rpartition(":")[2].isdecimal()
    ]
    if len({address.rpartition(":")[2] for _, _, address in waits}) < 2:  # noqa: PLR2004 - to differ takes two
        return
    rank, name, right = min(waits)
    odd, there, wrong = next(each for each in sorted(waits) if each[2].rpartition(":")[2] != right.rpartition(":")[2])
    port = right.rpartition(":")[2]
    yield Finding(
        f"rank {odd} on {there} waits in init_process_group at {wrong}, and rank {rank} on {name} at {right}",
        tuple(Evidence(f"rank {each}: {address}", "the same port on all hosts", host) for each, host, address in waits),
        Fix("set the same MASTER_PORT on all hosts", command=f"export MASTER_PORT={port}   # on {there}"),
        Place(variable="MASTER_PORT", host=there),
    )


def _lead_elsewhere(hosts: tuple[Host, ...]) -> Iterator[Finding]:
    """Compare which host the master's name leads to: one may know it by its name, another by its address."""
    values = groups(hosts, lambda host: _master_of(host, hosts))
    if len(values) < 2:  # noqa: PLR2004 - to differ takes two
        return
    (right, same), (wrong, others), *_ = values
    odd, usual = others[0], same[0]
    if len(same) == len(others) and (odd.node == 0 or odd.name in _named(usual)):
        right, wrong, odd, usual = wrong, right, usual, odd
    yield Finding(
        f"{odd.place} takes {wrong} for the master ({odd.master}), and {usual.place} {right} ({usual.master})",
        tuple(
            Evidence(f"{host.name}: {host.master} is {host.master_at}, {master}", "one host for all", host.launcher)
            for master, its in values
            for host in its[:4]
        ),
        Fix(
            "give all hosts the address of one of them",
            command=f"torchrun ... --rdzv_endpoint={_address(usual, right, hosts)}:{usual.port}   # or --master_addr; "
            "on all hosts",
        ),
        Place(variable="MASTER_ADDR", host=odd.name),
    )


def _master_of(host: Host, hosts: tuple[Host, ...]) -> str:
    """Return the name of the host that has the address to which a host's master leads; the address where none has."""
    addresses = host.master_at.split()
    if any(address in host.addresses or is_loopback(address) for address in addresses):
        return host.name
    return next((each.name for each in hosts if set(addresses) & set(each.addresses)), addresses[0])


def _named(host: Host) -> tuple[str, ...]:
    return (host.master, *host.master_at.split())


def _address(host: Host, master: str, hosts: tuple[Host, ...]) -> str:
    """Return an address of the master that another host can use."""
    own = next((each for each in hosts if each.name == master), host)
    usable = [each for each in own.addresses if not is_loopback(each) and not each.lower().startswith("fe80:")]
    return next(iter(usable), host.master)


def _differ(hosts: tuple[Host, ...], name: str, variable: str) -> Iterator[Finding]:
    values = groups(hosts, lambda host: getattr(host, name))
    if len(values) < 2:  # noqa: PLR2004 - to differ takes two
        return
    first = next((host for host in hosts if host.node == 0 or host.rank == 0), values[0][1][0])
    right = getattr(first, name)
    odd = next(host for value, same in values for host in same if value != right)
    yield Finding(
        f"{odd.place} has {variable}={getattr(odd, name)}, and {first.place} {right}",
        tuple(
            Evidence(f"{host.name}: {variable}={value}", "the same on all hosts", host.launcher)
            for value, same in values
            for host in same[:4]
        ),
        Fix(f"set the same {variable} on all hosts", command=f"export {variable}={right}   # on {odd.name}"),
        Place(variable=variable, host=odd.name),
    )
