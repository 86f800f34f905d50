"""Two hosts have the same node rank, or the same rank.

## What happens

A launch script was copied to the second host and its `--node_rank` or RANK was not changed. Two ranks 0 both open a
store, or wait for each other; two ranks 1 leave nobody to be the other one. torch says nothing, for more than
25 minutes with torch 2.13.

## How to be sure

`ddpdoctor check` on all hosts: both come to the master and say the same number. Where no host is number 0 nobody opens
the master's port; then the check prints a line `ddpdoctor-host:` on each host, and `ddpdoctor explain LOG LOG` compares
them.

## How to mend it

Give each host its own number, from 0: `--node_rank=1` (or NODE_RANK, RANK) on the second one.

## Versions and sources

Holds for all versions. Measured with torch 2.13 between network namespaces.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Host, Log, Place, Record, Severity, log_pattern, probe

from ..._cluster import HOST_LINE, comparable, hosts_in

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster


AILMENT = Ailment("DDP366", Severity.ERROR)


@probe
def at_the_meeting(cluster: Cluster) -> Iterator[Finding]:
    """Look for numbers that two hosts have."""
    yield from _twice((*cluster.hosts, *cluster.late), cluster.expected)


@log_pattern(HOST_LINE)
def in_logs(record: Record, log: Log) -> Iterator[Finding]:
    """Compare the lines of hosts that did not meet."""
    hosts = hosts_in(record, log)
    if comparable(hosts):
        yield from _twice(hosts, hosts[0].nodes or len(hosts))


def _twice(hosts: tuple[Host, ...], expected: int) -> Iterator[Finding]:
    for name, what in (("node", "node rank"), ("rank", "rank")):
        by_number: dict[int, list[Host]] = {}
        for host in hosts:
            if (number := getattr(host, name)) is not None:
                by_number.setdefault(number, []).append(host)
        taken = sorted((number, same) for number, same in by_number.items() if len(same) > 1)
        for number, same in taken:
            free = next((each for each in range(expected) if each not in by_number), None)
            names = " and ".join(host.name for host in same)
            option = {"node": "NODE_RANK", "rank": "RANK"}[name]
            odd = f"nobody is {free}" if free is not None else f"all {expected} numbers are taken"
            yield Finding(
                f"{names} are both {what} {number}, and {odd}",
                tuple(
                    Evidence(f"{host.name} has {what} {number}", "a number of its own", host.launcher) for host in same
                ),
                Fix(
                    f"give {same[-1].name} another number",
                    command=f"export {option}={free}   # on {same[-1].name}; with torchrun: --node_rank={free}",
                )
                if free is not None
                else Fix(
                    f"count one host more on all of them, and give one of these number {expected}; where {names} are "
                    "of two jobs, give each job a master's port of its own",
                    command=f"export NNODES={expected + 1}   # on all hosts; or export MASTER_PORT=...   # of one job",
                ),
                Place(variable=option, host=same[-1].name),
            )
        if taken:
            return
