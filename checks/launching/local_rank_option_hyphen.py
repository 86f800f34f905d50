"""The launcher passes --local-rank, and the script does not know the option by this spelling.

## What happens

`python -m torch.distributed.launch` hands each process its local rank as an option. Since torch 2.0 it is spelt
`--local-rank=0`, with a hyphen; scripts that declare `--local_rank` end with "unrecognized arguments: --local-rank=0"
on every rank, before anything else happens.

## How to be sure

The rejected argument has a hyphen; in the usage line the script's own option has an underscore, or it
has none.

## How to mend it

Start with torchrun and read `int(os.environ["LOCAL_RANK"])`, which works in all versions; or declare
both spellings, which argparse stores under one name.

## Versions and sources

Source: PyTorch documentation, "torch.distributed.launch", and its notice on the change in version 2.0. Holds for torch
2.0 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Log, Record, Severity, log_pattern

from ._option import refused

AILMENT = Ailment("DDP405", Severity.ERROR)
DECLARED = r"usage:[^\n]{0,999}--local_rank\b|^\s+\[?--local_rank\b"


@log_pattern(refused("local-rank"), context=(DECLARED,))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Quote what the script's own parser refused, and what it would take."""
    usage = log.first(DECLARED)
    yield Finding(
        "torch.distributed.launch passes --local-rank, and the script "
        + ("declares --local_rank" if usage else "has no such option"),
        (
            record.proof(match, "no --local-rank in the arguments: torchrun sets $LOCAL_RANK"),
            *((usage[0].proof(usage[1], "--local-rank"),) if usage else ()),
        ),
        Fix(
            "start with torchrun and read LOCAL_RANK; or let the script take both spellings",
            command="torchrun --standalone --nproc_per_node=2 train.py",
            diff='-parser.add_argument("--local_rank", type=int, default=0)\n'
            '+parser.add_argument("--local-rank", "--local_rank", type=int, default=0)',
        ),
        record.place,
    )
