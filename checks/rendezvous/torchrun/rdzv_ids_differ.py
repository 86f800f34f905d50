"""The hosts were given different rendezvous ids.

## What happens

torchrun's nodes meet under `--rdzv_id` in the store behind `--rdzv_endpoint`. A node with another id makes a
rendezvous of its own there and waits in it for the others, which wait in theirs: nothing is printed, until the
time-out of 10 minutes. `--rdzv_id=$RANDOM` does that, and the id of a job of the scheduler where each host has its
own job.

## How to be sure

`ps -ww -C torchrun,python -o args= | grep -o 'rdzv[^ ]*'` on each host. `ddpdoctor run` prints a line
`ddpdoctor-host:` where torchrun waits for other nodes, and `ddpdoctor explain LOG LOG` compares them; `ddpdoctor
check -- torchrun ...` on all hosts compares the ids where they meet.

## How to mend it

Give all hosts one text: `--rdzv_id=$SLURM_JOB_ID`, or any word.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py, `_key`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import HOST_LINE, Ailment, Finding, Fix, Host, Log, Place, Record, Severity, log_pattern, probe

from ..._hosts.cluster import hosts_to_compare
from ._differ import difference

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster

AILMENT = Ailment("DDP380", Severity.ERROR)


@probe
def at_the_meeting(cluster: Cluster) -> Iterator[Finding]:
    """Compare the ids of those who met without torchrun."""
    yield from _differ(cluster.hosts)


@log_pattern(HOST_LINE)
def in_logs(record: Record, log: Log) -> Iterator[Finding]:
    """Compare the lines of hosts that did not meet."""
    yield from _differ(hosts_to_compare(record, log))


def _differ(hosts: tuple[Host, ...]) -> Iterator[Finding]:
    apart = difference(hosts, lambda host: host.rdzv_id, "--rdzv_id={}".format)
    if apart is None:
        return
    yield Finding(
        f"{apart.odd.place} waits under --rdzv_id={apart.other}, and {apart.like.place} under {apart.usual}",
        apart.evidence,
        Fix("give all hosts the same id", command=f"torchrun ... --rdzv_id={apart.usual}   # on {apart.odd.name}, too"),
        Place(host=apart.odd.name),
    )
