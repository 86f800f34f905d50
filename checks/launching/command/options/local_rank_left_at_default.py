"""The script's --local_rank keeps its default, since this launcher passes none, and DeepSpeed refuses it.

## What happens

`torchrun` tells a rank its number on the host by the variable LOCAL_RANK alone; the `deepspeed` launcher passes
`--local_rank=N` as well. A script whose option has the default 0, and that is started by torchrun, has 0 on every rank.
DeepSpeed compares both where it is given the arguments: "Mismatch in local rank setting, args.local_rank=0 but
env['LOCAL_RANK']=1" ends all ranks of a host but the first one, and the first waits for them. Without DeepSpeed every
rank of the host goes to GPU 0.

## How to be sure

The option's default in the script is the number that the message says of args.local_rank.

## How to mend it

Take the default from the variable, which both launchers set:

    parser.add_argument("--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", -1)))

## Versions and sources

Seen with DeepSpeed 0.19.8, torchrun of torch 2.13. Source: deepspeed/runtime/engine.py, `_do_args_sanity_check`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP495", Severity.ERROR)


@log_pattern(
    r"AssertionError: Mismatch in local rank setting, args\.local_rank=(?P<option>-?\d+) but "
    r"env\['LOCAL_RANK'\]=(?P<variable>\d+)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Report both numbers."""
    yield Finding(
        f"--local_rank is {match['option']} where LOCAL_RANK is {match['variable']}: the launcher sets the "
        "variable and passes no option, which keeps its default",
        (record.proof(match, f"args.local_rank={match['variable']}"),),
        Fix(
            "take the option's default from the variable, or start the script by deepspeed",
            diff='-parser.add_argument("--local_rank", type=int, default=0)\n'
            '+parser.add_argument("--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", -1)))',
        ),
        record.place,
    )
