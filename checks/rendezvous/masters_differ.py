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

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Host, Log, Place, Record, Severity, log_pattern, probe

from .._cluster import HOST_LINE, comparable, groups, hosts_in

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
    hosts = hosts_in(record, log)
    if comparable(hosts):
        yield from _differ(hosts, "port", "MASTER_PORT")
        yield from _differ(hosts, "master", "MASTER_ADDR")


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
