"""Two torchruns of one host share a rendezvous: one waits for the other, or ends with it.

## What happens

With --rdzv_backend=c10d one torchrun hosts the store for all that name the same endpoint. Several jobs on one host with
the same endpoint (localhost:29400, say) share the first one's store: when that job ends, well or not, all others lose
it in the middle of a healthy run: "failed to send a keep-alive heartbeat to the rendezvous ... due to an error of type
RendezvousConnectionError", "The connection to the C10d store has failed" out of num_nodes_waiting.

Where they have the same --rdzv_id as well (none given is one, too), the second torchrun comes to a rendezvous that is
full: it starts no rank, says nothing, and waits until the first job ends.

## How to be sure

`pgrep -af torchrun` shows two with one endpoint. `ddpdoctor run` names the other one while its
own waits (missing-ranks-at-init).
The runs end at the moment at which another one ends. At the end of a training over several nodes the
same lines are harmless: the node that hosts the store leaves first.

## How to mend it

`--standalone`, or an endpoint with port 0 (`localhost:0`), for each job on one host.

## Versions and sources

Source: torch.distributed.elastic.rendezvous, DynamicRendezvousHandler and C10dRendezvousBackend._call_store; torchrun
documentation, "Stacked single-node multi-worker". Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Severity, log_pattern

from ..._hosts.store import C10D_STORE

AILMENT = Ailment("DDP360", Severity.ERROR)
RUNNING = r"failed to send a keep-alive heartbeat to the rendezvous|\bnum_nodes_waiting\b"
SEVERAL = r"min_nodes\s+: (?:[2-9]|\d\d)|--nnodes[= ](?:[2-9]|\d\d)"
PEER_LOST = r"(?:Read|Write) error \[|Connection closed by peer \[|ncclRemoteError"
"""A rank of this job whose peer was gone: the store went away with that one's host, or with its torchrun."""
FAILED = r"failed \(exitcode: -?\d+\)|Received (?:Signals\.)?(?:SIG\w+|\d+) death signal"


@log_pattern(C10D_STORE, context=(RUNNING, SEVERAL, FAILED, PEER_LOST))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """See that the store was lost while ranks ran, on a single node, and no rank had failed."""
    running = re.search(RUNNING, record.text)
    where, lost = (record, running) if running else log.first(RUNNING) or (record, None)
    if lost is None or log.first(SEVERAL) or log.before(record, FAILED) or log.before(record, PEER_LOST):
        return
    yield Finding(
        "the store of the rendezvous went away while the ranks ran: the torchrun that hosted it ended",
        (record.proof(match, "a store of this job alone"), where.proof(lost, "a heartbeat that arrives")),
        Fix(
            "give each job on a host an endpoint of its own",
            command="torchrun --standalone --nproc_per_node=1 train.py",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "another job with the same --rdzv_endpoint hosted the store, and ended",
                "the node that hosted the store failed; its own output says why",
            ),
            "pgrep -af torchrun   # two with the same --rdzv_endpoint",
        ),
    )
