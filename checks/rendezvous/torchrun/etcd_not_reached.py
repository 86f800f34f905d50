"""An agent of torchrun does not reach etcd, or no longer, and etcd holds the rendezvous.

## What happens

With `--rdzv_backend=etcd` or `etcd-v2` all that the agents agree on is kept in an etcd server: who takes part, and keys
that run out unless their agent renews them, every few seconds, in a thread of its own (`lease_worker`). Where the
server does not answer at the start, the launch ends with "etcd.EtcdConnectionFailed: Connection to etcd failed due to
...". Where it stops answering once later, the thread ends with the same words under "Exception in thread Thread-2
(lease_worker)", and a few seconds later the other agents see a key that is gone: "Keep-alive key ... is not renewed",
"Rendevous version 3 is incomplete", and they stop their ranks. A single late answer is enough.

## How to be sure

`curl -m 5 http://HOST:2379/health` from the host of the agent. If it answers now, look at how long etcd took at that
time: a slow disk under etcd, or a network that was cut for a moment.

## How to mend it

Use the rendezvous of torch's own store, `--rdzv_backend=c10d --rdzv_endpoint=HOST_OF_NODE_0:29400`, which needs no
server; else give etcd a disk of its own, and the agents an address that they reach.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch/distributed/elastic/rendezvous/etcd_rendezvous.py, `setup_lease_renewal`;
python-etcd, client.py; reported as pytorch/pytorch#194870. Not run here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Place, Record, Severity, log_pattern

AILMENT = Ailment("DDP385", Severity.ERROR)
SERVER = re.compile(r"host='(?P<host>[\w.-]{1,200})', port=(?P<port>\d{1,5})")
LEASE = re.compile(r"\bin lease_worker\b|\bThread-\d+ \(lease_worker\)")


@log_pattern(
    r"etcd\.(?:EtcdConnectionFailed: (?P<why>[^\n]{1,400})|EtcdException: (?P<none>No more machines in the cluster))"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the server, and whether it had answered before."""
    server = SERVER.search(match["why"] or "") or SERVER.search(record.text)
    at = f"{server['host']}:{server['port']}" if server else "the server"
    renewed = LEASE.search(record.text) is not None
    said = "stopped answering while the ranks ran, so that this node's place ran out" if renewed else "does not answer"
    causes = (
        "etcd was too slow for once: a full or slow disk, or too much to do",
        "the network between this node and etcd was cut for a moment",
        "etcd was ended, or moved",
    )
    yield Finding(
        f"etcd, which holds the rendezvous, {said}: {at}",
        (record.proof(match, "an answer of etcd each time, within its time limit"),),
        Fix(
            "use the rendezvous of torch's own store, which needs no server of its own",
            command="torchrun --rdzv_backend=c10d --rdzv_endpoint=HOST_OF_NODE_0:29400 --rdzv_id=JOB --nnodes=2 ...",
        ),
        Place(rank=record.rank, host=record.node),
        ambiguity=Ambiguity(
            causes
            if renewed
            else (
                "etcd was not started, or listens on its own host alone",
                "the address or the port of --rdzv_endpoint is not etcd's, or a firewall is between",
                "etcd is too slow to answer in time",
            ),
            f"curl -sS -m 5 http://{at if server else 'HOST:2379'}/health   # on this node; and etcd's own log",
        ),
    )
