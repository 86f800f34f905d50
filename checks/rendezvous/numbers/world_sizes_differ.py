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

from ddpdoctor.check import (
    HOST_LINE,
    Ailment,
    Evidence,
    Finding,
    Fix,
    Host,
    Log,
    Place,
    Record,
    Severity,
    log_pattern,
    probe,
)

from ..._hosts.cluster import groups, hosts_to_compare

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster


AILMENT = Ailment("DDP367", Severity.ERROR)


@probe
def at_the_meeting(cluster: Cluster) -> Iterator[Finding]:
    """Compare the sizes, and count."""
    hosts = (*cluster.hosts, *cluster.late)
    found = list(_differ(cluster.hosts))
    yield from found
    beyond = [host for host in hosts if host.node is not None and host.node >= cluster.expected]
    numbers = {host.node for host in hosts if host.node is not None}
    twice = len(numbers) <= cluster.expected < len(hosts) and bool(numbers)  # that is another check's
    if not found and beyond and len(hosts) <= cluster.expected:
        yield _shifted(beyond[-1], hosts, cluster.expected)
    elif not found and (beyond or (len(hosts) > cluster.expected and not twice)):
        host = (beyond or hosts)[-1]
        yield Finding(
            f"{len(hosts)} hosts came, and the launch has {cluster.expected}: {host.place} is one too many",
            (Evidence(f"{host.name} has node rank {host.node}", f"0 to {cluster.expected - 1}", hosts[0].by),),
            Fix(
                "count all hosts, on all of them; or start nothing on this one",
                command=f"export NNODES={len(hosts)}   # on all hosts; with torchrun: --nnodes",
            ),
            Place(host=host.name),
        )


def _shifted(host: Host, hosts: tuple[Host, ...], expected: int) -> Finding:
    """Return that a number is beyond the last one, though no host is too many."""
    numbers = {each.node for each in hosts}
    free = next(each for each in range(expected) if each not in numbers)
    return Finding(
        f"{host.name} has node rank {host.node}, and {expected} hosts count from 0 to {expected - 1}: nobody is {free}",
        tuple(
            Evidence(f"{each.name} has node rank {each.node}", f"0 to {expected - 1}", each.by) for each in hosts[:8]
        ),
        Fix(
            "count the hosts from 0",
            command=f"export NODE_RANK={free}   # on {host.name}; with torchrun: --node_rank={free}"
            if 0 in numbers
            else "export NODE_RANK=$((NODE_RANK - 1))   # on all hosts; with torchrun: --node_rank",
        ),
        Place(variable="NODE_RANK", host=host.name),
    )


@log_pattern(HOST_LINE)
def in_logs(record: Record, log: Log) -> Iterator[Finding]:
    """Compare the lines of hosts that did not meet."""
    yield from _differ(hosts_to_compare(record, log))


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
