"""localhost was tried over IPv6 first: a warning without consequence.

## What happens

`localhost` stands for ::1 and 127.0.0.1. torch tries the addresses one after the other; on a host or in a container
without IPv6 the first attempt fails: "errno: 99 - Cannot assign requested address" or "errno: 97 - Address family not
supported by protocol", as a warning `[W socket.cpp...]`. The next attempt succeeds, and nothing is wrong.

## How to be sure

The training runs on. If init_process_group ends with an exception, read that one instead.

## How to mend it

Nothing needs to be done. `MASTER_ADDR=127.0.0.1` avoids the line.

## Versions and sources

Source: torch/csrc/distributed/c10d/socket.cpp, which takes IPv6 first unless told otherwise. Holds for torch 2.2 to
2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Kind, Record, Role, Severity, log_pattern

AILMENT = Ailment("DDP316", Severity.NOTE)


@log_pattern(
    r"(?:client socket (?:has failed to connect to|cannot be initialized to connect to)"
    r"|server socket (?:cannot be initialized on|has failed to bind to)) (\[[^\s\]]+\]:\d+|localhost:\d+)"
    r" \(errno: (99|97|101) -",
    role=Role.HARMLESS,
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read the warning; an exception is another matter."""
    if record.kind is Kind.TRACEBACK or "Error: The" in record.text:
        return
    yield Finding(
        f"{match[1]} is not reachable over IPv6 here (errno {match[2]}); torch tries IPv4 next",
        (record.proof(match, "no action while the training runs on"),),
        Fix("leave it, or give the address by number", command="export MASTER_ADDR=127.0.0.1"),
        record.place,
    )
