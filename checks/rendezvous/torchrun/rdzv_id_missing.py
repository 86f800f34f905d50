"""Each node made up a rendezvous id of its own, so they never meet.

## What happens

Nodes meet in a rendezvous when endpoint and id are equal. Without an id the launch API makes one up, a random number,
on each node: "config has no run_id, generated a random run_id: 1745...". Each node then waits alone, until
RendezvousTimeoutError. On a single node the warning is harmless.

## How to be sure

The warning, followed by RendezvousTimeoutError; the numbers differ between the nodes.

## How to mend it

The same `--rdzv_id` on every node, a new one for each job (`$SLURM_JOB_ID`).

## Versions and sources

Source: torch.distributed.launcher.api, launch_agent; torchrun documentation, "Multi-node". Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP361", Severity.ERROR)
NO_RUN_ID = r"config has no run_id, generated a random run_id: (\d+)"
TIMED_OUT = r"\bRendezvousTimeoutError\b"


@log_pattern(NO_RUN_ID, context=(TIMED_OUT,))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """See that the wait ended by a time-out."""
    late = log.first(TIMED_OUT)
    if late is None:
        return
    ids = sorted({found[1] for _, found in log.find(NO_RUN_ID)})
    yield Finding(
        f"{len(ids)} nodes wait under {len(ids)} different ids"
        if len(ids) > 1
        else "this node waits under an id that no other node knows: no --rdzv_id is given",
        (record.proof(match, "the same --rdzv_id on every node"), late[0].proof(late[1], "all nodes join")),
        Fix(
            "give every node the same id",
            command="torchrun --nnodes=2 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_id=job1 "
            "--rdzv_endpoint=<address of node 0>:29400 train.py",
        ),
        record.place,
    )
