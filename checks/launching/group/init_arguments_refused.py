"""init_process_group refuses its own arguments.

## What happens

`timeout` is a `datetime.timedelta`, not a number of seconds. With `init_method="tcp://..."` or `file://...`, `rank` and
`world_size` are both needed, and both are whole numbers: an option of the script that was not given is None. It
fails on each rank, before any rank waits.

## How to be sure

The message names the argument and, where torch has one, its value.

## How to mend it

Under torchrun leave rank, world size and init_method out: `dist.init_process_group("nccl",
timeout=timedelta(minutes=30))`. With mp.spawn pass both: the number that the function gets first, and `nprocs`.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. Sources: torch/distributed/rendezvous.py, `rendezvous` and
`_tcp_rendezvous_handler`; distributed_c10d.py, `_check_valid_timeout`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP446", Severity.ERROR)
NAMES = {"world size": "world_size"}


@log_pattern(
    r"(?P<scheme>tcp|file):// rendezvous: (?P<missing>rank|world size) parameter missing"
    r"|`(?P<name>rank|world_size)` must be an integer\. (?P<value>None|-?\d+\.\d+)"
)
def of_rank_or_size(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the one that is missing, or is no number; a number as text is another check's."""
    name = NAMES.get(match["missing"], match["missing"]) or match["name"]
    value = match["value"]
    said = f"is given {name}={value}" if value else f"is given no {name}"
    yield Finding(
        f"init_process_group {said}" + (f", with init_method {match['scheme']}://..." if match["scheme"] else ""),
        (record.proof(match, f"{name}, a whole number"),),
        Fix(
            "leave all three to torchrun; without a launcher give both numbers",
            diff="-dist.init_process_group(backend, init_method=url, rank=rank)\n+dist.init_process_group(backend)",
            command="torchrun --standalone --nproc_per_node=2 train.py",
        ),
        record.place,
    )


@log_pattern(r"Expected timeout argument to be of type\s*datetime\.timedelta(?:, got (?P<value>[^\n]{1,60}))?")
def of_the_timeout(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Quote what was given instead, where torch does."""
    value = match["value"] or "..."
    yield Finding(
        f"init_process_group is given timeout={value}, which is no timedelta"
        if match["value"]
        else "timeout is no timedelta",
        (record.proof(match, "timeout=datetime.timedelta(seconds=...)"),),
        Fix(
            "say it as a timedelta",
            diff=f"+from datetime import timedelta\n-dist.init_process_group(backend, timeout={value})\n"
            f"+dist.init_process_group(backend, timeout=timedelta(seconds={value}))",
        ),
        record.place,
    )
