"""The hosts do not agree on how many hosts, or ranks, there are.

## What happens

NNODES or WORLD_SIZE was changed on one host and not on another, or a host was added that the others do not count. The
ranks with the smaller number go on without the others, or all of them wait for ranks that nobody starts. torch says
nothing, for more than 25 minutes with torch 2.13.

## How to be sure

`ddpdoctor check` on all hosts: each says what its launch told it, and the numbers are compared.

## How to mend it

Give all hosts the same `--nnodes` and `--nproc_per_node`, or the same WORLD_SIZE.

## Versions and sources

Holds for all versions. Measured with torch 2.13 between network namespaces.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Host, Log, Place, Record, Severity, log_pattern, probe

from ..._cluster import HOST_LINE, comparable, groups, hosts_in

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster


AILMENT = Ailment("DDP367", Severity.ERROR)


@probe
def at_the_meeting(cluster: Cluster) -> Iterator[Finding]:
    """Compare the sizes, and count."""
    found = list(_differ(cluster.hosts))
    yield from found
    beyond = [host for host in cluster.hosts if host.node is not None and host.node >= cluster.expected]
    if not found and (beyond or len(cluster.hosts) > cluster.expected):
        host = (beyond or cluster.hosts)[-1]
        yield Finding(
            f"{len(cluster.hosts)} hosts came, and the launch has {cluster.expected}: {host.place} is one too many",
            (Evidence(f"{host.name} has node rank {host.node}", f"0 to {cluster.expected - 1}", cluster.hosts[0].by),),
            Fix(
                "count all hosts, on all of them; or start nothing on this one",
                command=f"export NNODES={len(cluster.hosts)}   # on all hosts; with torchrun: --nnodes",
            ),
            Place(host=host.name),
        )


@log_pattern(HOST_LINE)
def in_logs(record: Record, log: Log) -> Iterator[Finding]:
    """Compare the lines of hosts that did not meet."""
    hosts = hosts_in(record, log)
    if comparable(hosts):
        yield from _differ(hosts)


def _differ(hosts: tuple[Host, ...]) -> Iterator[Finding]:
    for name, variable, what in (("nodes", "NNODES", "hosts"), ("world_size", "WORLD_SIZE", "ranks")):
        by_size = groups(hosts, lambda host, name=name: getattr(host, name))  # type: ignore[misc]  # the default binds it
        if len(by_size) < 2:  # noqa: PLR2004 - to differ takes two
            continue
        usual, *others = by_size
        odd = others[0][1][0]
        yield Finding(
            f"{odd.place} counts {others[0][0]} {what}, and {', '.join(host.name for host in usual[1][:8])} {usual[0]}",
            tuple(
                Evidence(f"{host.name}: {variable}={size}", "the same on all hosts", host.launcher)
                for size, same in by_size
                for host in same[:4]
            ),
            Fix(
                f"set the same {variable} on all hosts",
                command=f"export {variable}={usual[0]}   # on {odd.name}, if {usual[0]} is right",
            ),
            Place(variable=variable, host=odd.name),
        )
        return
