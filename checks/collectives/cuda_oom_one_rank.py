"""One rank's GPU ran out of memory, and the others timed out waiting for it.

Batches differ in length, rank 0 holds more (logging, evaluation, a checkpoint loaded on GPU 0), and one rank raises
OutOfMemoryError. It leaves the training; the others stay in their collective and print a time-out some minutes later,
or "Connection closed by localRank k". The last lines of such a log speak of NCCL only.

How to be sure: the out-of-memory error stands before the time-outs, on fewer than all ranks.

How to mend it: bound the memory of a step on every rank (cap the length of samples, sort or bucket by length), a
smaller batch with gradient accumulation, PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True against fragments. Do not
catch the error on one rank only: the others have to skip the step too.

Holds for torch 2.2 to 2.13. Source: torch, CUDACachingAllocator.cpp; NCCL, src/proxy.cc.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor import Card, Finding, Fix, Place, Severity
from ddpdoctor.check import sign
from ddpdoctor.explain.records import Log, Record

from ._waits import STUCK
from ._watchdog import named

CARD = Card("DDP721", Severity.ERROR)
OOM = r"CUDA out of memory\. Tried to allocate|torch\.(?:cuda\.)?OutOfMemoryError"
WAITED = (
    STUCK + r"|\[Service thread\] Connection closed by localRank|ncclRemoteError: A call failed"
    r"|NCCL communicator was aborted|Connection closed by peer \[|watchdog got stuck for \d"
)


@sign(
    OOM,
    beside=(OOM, WAITED),
    explains=(
        "cuda-oom",
        "collective-timeout",
        "rank-divergence",
        "rank-died-or-stuck",
        "slow-rank-work",
        "watchdog-heartbeat-stuck",
        "remote-rank-died-or-network",
        "rank0-exited-store-gone",
    ),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Some ranks ran out of memory, and others, later, waited for them."""
    first = log.first(OOM)
    full = log.ranks(OOM)
    waited = [(each, found) for each, found in log.find(WAITED) if each.rank is None or each.rank not in full]
    if first is None or first[0] is not record or not waited or log.before(record, STUCK):
        return
    who = named(sorted(full)) if full else "a rank"
    yield Finding(
        f"{who} ran out of GPU memory, and the others waited for it in vain",
        (record.proof(match, "every rank's step fits its GPU"), waited[0][0].proof(waited[0][1])),
        Fix(
            "bound the memory of a step on every rank: cap the length of samples, or take smaller batches",
            command="export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        ),
        Place(rank=min(full)) if full else record.place,
    )
