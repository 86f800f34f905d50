"""No node takes itself for the host of the rendezvous, or that host is not reached.

## What happens

With --rdzv_backend=c10d the node whose name or address equals --rdzv_endpoint opens the store; all others connect to
it. If the endpoint is an alias, a NAT or service address, or the name of another interface, no node recognises
itself: every node, that of the endpoint too, waits 60 s and ends with "RendezvousConnectionError: The connection to
the C10d store has failed". The nodes other than the host print the same when a firewall is in the way or the host is
not up.

## How to be sure

The same error in the output of the endpoint's own node. If that one waits for peers, it is the
network.

## How to mend it

`--rdzv_conf is_host=true` on exactly one node; `--rdzv_endpoint` where only `--master_addr` was given, which c10d does
not read ("master_addr is only used for static rdzv_backend": each node then looks for the store at itself); or an
endpoint that `hostname` or `hostname -I` prints there.

## Versions and sources

Source: torch.distributed.elastic.rendezvous.c10d_rendezvous_backend, _create_tcp_store. Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Severity, log_pattern

from ..._hosts.store import C10D_STORE, GAVE_UP, is_number, is_placeholder
from .rdzv_shared_between_jobs import RUNNING

AILMENT = Ailment("DDP359", Severity.ERROR)


NO_ENDPOINT = r"master_addr is only used for static rdzv_backend and when rdzv_endpoint is not specified"


@log_pattern(C10D_STORE, context=(GAVE_UP, RUNNING, NO_ENDPOINT))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """See that the store was never reached, and on how many nodes."""
    gave_up = re.search(GAVE_UP, record.text)
    where, tried = (record, gave_up) if gave_up else log.first(GAVE_UP) or (record, None)
    if tried is None and (re.search(RUNNING, record.text) or log.first(RUNNING)):
        return
    if tried is not None and (is_number(tried[1]) or is_placeholder(tried[1])):
        return
    if unused := log.first(NO_ENDPOINT):
        yield _without_endpoint(record, match, unused)
        return
    nodes = {each.node or each.source for each, _ in log.find(C10D_STORE)}
    endpoint = f"{tried[1]}:{tried[2]}" if tried else "--rdzv_endpoint"
    yield Finding(
        f"no store of the rendezvous at {endpoint}"
        + (f", on {len(nodes)} nodes: none takes itself for the host" if len(nodes) > 1 else ""),
        (
            *((where.proof(tried, "one node opens the store there"),) if tried else ()),
            record.proof(match, "the nodes join"),
        ),
        Fix(
            "let one node, and only one, open the store; the endpoint is an address that this node has",
            command="torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_id=job1 --rdzv_endpoint=<address of node 0>:29400 "
            "--rdzv_conf is_host=true ...   # is_host=true on node 0, is_host=false on the others",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "no node's name or address equals the endpoint, so nobody opens the store",
                "the endpoint's node has not started, or its torchrun ended",
                "a firewall is between this node and the endpoint",
            ),
            "hostname; hostname -I   # on the endpoint's node, which must print it; then from here: nc -zv -w 5 "
            + (f"{tried[1]} {tried[2]}" if tried else "HOST PORT"),
        ),
    )


def _without_endpoint(record: Record, match: re.Match[str], unused: tuple[Record, re.Match[str]]) -> Finding:
    where, said = unused
    return Finding(
        "--rdzv_backend=c10d is given --master_addr, which it does not read: each node looks for the store elsewhere",
        (where.proof(said, "--rdzv_endpoint"), record.proof(match, "the nodes join")),
        Fix(
            "name the place by --rdzv_endpoint, the same on all nodes; or leave --rdzv_backend out, with --node_rank",
            command="torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_id=job1 --rdzv_endpoint=<address of node 0>:29400 "
            "...\ntorchrun --nnodes=2 --node_rank=0 --master_addr=<address of node 0> --master_port=29500 ...",
        ),
        record.place,
    )
