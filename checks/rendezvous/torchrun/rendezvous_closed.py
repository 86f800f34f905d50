"""torchrun came to a rendezvous that was closed.

## What happens

A c10d rendezvous is closed for good when one of its agents ends: its training succeeded or failed, or it was
interrupted. Another node that comes or restarts afterwards with the same `--rdzv_id` finds it closed and ends with
RendezvousClosedError, without having started a rank. So it is what follows from the end of another node, or of an
earlier job with the same id.

## How to be sure

Look at the end of the other nodes' output, which comes first. The same id in two jobs: compare `--rdzv_id`.

## How to mend it

Mend what ended the other node. Give every job an id of its own: `--rdzv_id=$SLURM_JOB_ID`.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch/distributed/elastic/rendezvous/dynamic_rendezvous.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Role, Severity, log_pattern

AILMENT = Ailment("DDP371", Severity.ERROR)


@log_pattern(r"\bRendezvousClosedError\b", role=Role.CONSEQUENCE)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Report what it follows from: this node did nothing wrong."""
    yield Finding(
        "the rendezvous was closed before this node had joined: another node had ended, or an earlier job with this id",
        (record.proof(match, "a rendezvous that is open until all nodes have joined"),),
        Fix(
            "see first why the other node ended; give each job an id of its own",
            command="torchrun --rdzv_id=$SLURM_JOB_ID --rdzv_backend=c10d --rdzv_endpoint=$HOST:29400 --nnodes=2 ...",
        ),
        record.place,
        ambiguity=Ambiguity(
            ("another node's training failed or was interrupted", "an earlier job had the same --rdzv_id"),
            "tail -n 50 OTHER_NODE.log   # its own error, or none: then compare the ids",
        ),
    )
