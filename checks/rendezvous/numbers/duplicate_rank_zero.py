"""Two processes both believe that they are rank 0.

## What happens

Rank 0 opens the store on MASTER_PORT. If every process is told `rank=0` or `--local_rank 0` in the code or on the
command line, the second one finds the port taken by the first: "The server socket has failed to listen on any local
network address ... Address already in use", out of the script's own init_process_group. With one process it works,
and another port does not help.

## How to be sure

The rank is written down in the launch command or in the call; with a port that another program holds,
one process fails as well (master-port-in-use).

## How to mend it

Take the rank from the environment that torchrun sets, and give no rank on the command line.

## Versions and sources

Source: torch.distributed documentation, "Environment variable initialization"; TCPStore. Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Log, Record, Severity, log_pattern

from ._rank_zero import FIXED_ARGUMENT, FIXED_OPTION, fixed_rank

AILMENT = Ailment("DDP357", Severity.ERROR)
IN_USE = r"server socket has failed to (?:listen|bind)\b"


@log_pattern(IN_USE, context=(FIXED_ARGUMENT, FIXED_OPTION), supersedes=("master-port-in-use",))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Look for a rank that is written down."""
    written = fixed_rank(record, log)
    if written is None:
        return
    yield Finding(
        "every process is told that it is rank 0, so the second one finds the store's port taken by the first",
        (
            record.proof(match, "one process opens the store"),
            written[0].proof(written[1], "the rank that torchrun sets"),
        ),
        Fix(
            "give no rank on the command line or in the call; read what torchrun sets",
            diff='-dist.init_process_group("nccl", rank=0, world_size=2)\n+dist.init_process_group("nccl")\n'
            '+local_rank = int(os.environ["LOCAL_RANK"])',
        ),
        record.place,
    )
