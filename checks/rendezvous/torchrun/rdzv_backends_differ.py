"""The hosts were given different rendezvous backends.

## What happens

torchrun's `--rdzv_backend` says how its nodes meet. With `static`, which is used where none is given, node 0 opens a
store at `--master_addr` and `--master_port` and the nodes read their numbers from the command. With `c10d` the nodes
draw their numbers under `--rdzv_id` in a store that one of them opens. Both are a store at the same port: a node of the
other kind connects to it, finds none of its own there and waits in silence, until the time-out.

## How to be sure

`ps -ww -C torchrun,python -o args= | grep -oE '(rdzv|master)[^ ]*'` on each host. `ddpdoctor run` prints a line
`ddpdoctor-host:` where torchrun waits for other nodes, and `ddpdoctor explain LOG LOG` compares them; `ddpdoctor
check -- torchrun ...` on all hosts compares the backends where they meet.

## How to mend it

Start all nodes with the same options: `--rdzv_backend=c10d --rdzv_endpoint=HOST:29500 --rdzv_id=job1` on all, or
`--master_addr=HOST --master_port=29500 --node_rank=0, 1, ...`, which is the static one.

## Versions and sources

Holds for torch 2.2 to 2.13; tried with 2.13 between network namespaces. Source: torch/distributed/run.py;
torch/distributed/elastic/rendezvous/static_tcp_rendezvous.py and c10d_rendezvous_backend.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import HOST_LINE, Ailment, Finding, Fix, Host, Log, Place, Record, Severity, log_pattern, probe

from ..._hosts.cluster import hosts_to_compare
from ._differ import difference

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster

AILMENT = Ailment("DDP373", Severity.ERROR)


@probe
def at_the_meeting(cluster: Cluster) -> Iterator[Finding]:
    """Compare the backends of those who met without torchrun."""
    yield from _differ(cluster.hosts)


@log_pattern(HOST_LINE)
def in_logs(record: Record, log: Log) -> Iterator[Finding]:
    """Compare the lines of hosts that did not meet."""
    yield from _differ(hosts_to_compare(record, log))


def _differ(hosts: tuple[Host, ...]) -> Iterator[Finding]:
    apart = difference(hosts, lambda host: host.rdzv_backend, _said)
    if apart is None:
        return
    yield Finding(
        f"{apart.odd.place} waits in a rendezvous of the backend {apart.other}, and {apart.like.place} in one of "
        f"{apart.usual}: they never find each other",
        apart.evidence,
        Fix("give all hosts the same backend", command=_command(apart.odd, apart.usual, hosts)),
        Place(host=apart.odd.name),
    )


def _said(backend: str) -> str:
    return "static, which is used without --rdzv_backend" if backend == "static" else f"--rdzv_backend={backend}"


def _command(odd: Host, backend: str, hosts: tuple[Host, ...]) -> str:
    """Return the options of a host that has the right backend, for the odd one."""
    like = next(host for host in hosts if host.rdzv_backend == backend)
    if backend == "static":
        numbers = {host.node for host in hosts}
        free = next(number for number in range(len(hosts) + 1) if number not in numbers)
        told = f"--master_addr={like.master} --master_port={like.port} --node_rank={free}"
    else:
        told = f"--rdzv_backend={backend} --rdzv_endpoint={like.master}:{like.port} --rdzv_id={like.rdzv_id or 'job1'}"
    return f"torchrun ... {told}   # on {odd.name}"
