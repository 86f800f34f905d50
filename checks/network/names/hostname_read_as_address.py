"""A host name that consists of digits is read as an address.

## What happens

getaddrinfo takes a name such as `05` or `6841231` for one 32-bit number: 0.0.0.5, 0.104.99.143. Launchers that pass the
host's own name as the address of the store (torchrun --standalone, Slurm scripts, containers whose id is all digits)
then connect to an address that nobody has: "The client socket has failed to connect to any network address of (05,
40323)", next to an address that begins with 0.

## How to be sure

The name in parentheses has digits only; `getent ahosts 05` shows what it is taken for.

## How to mend it

Give an address in place of the name (`--local-addr 127.0.0.1`, `--rdzv-endpoint localhost:0`), or give
the host a name with a letter in it.

## Versions and sources

Source: inet_aton(3), getaddrinfo(3); threads of torch 1.12 to 2.2. Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

from ..._hosts.store import GAVE_UP, is_number, read_as

AILMENT = Ailment("DDP313", Severity.ERROR)


@log_pattern(GAVE_UP)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Look for a name of digits."""
    if not is_number(match[1]):
        return
    yield Finding(
        f"the host name {match[1]} is read as the address {read_as(match[1])}, which nobody has",
        (record.proof(match, "a name with a letter, or an address"),),
        Fix(
            "give addresses in place of the name, or rename the host",
            command="torchrun --rdzv-backend=c10d --rdzv-endpoint=localhost:0 --local-addr=127.0.0.1 "
            "--nproc_per_node=2 train.py",
        ),
        record.place,
    )
