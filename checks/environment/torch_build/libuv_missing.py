"""torchrun asks for a store that this build of torch does not have (libuv).

## What happens

From torch 2.4 on the TCPStore of a rendezvous is served by libuv unless told otherwise. The wheels for Windows are
built without it, so torchrun, and whatever uses the static or c10d rendezvous, ends at once: "RuntimeError: use_libuv
was requested but PyTorch was built without libuv support" (torch 2.4 to 2.6 write "was build").

## How to be sure

The message has no other cause.

## How to mend it

Set USE_LIBUV=0 for the launcher and the ranks; in code, `init_method="env://?use_libuv=0"`, or
`TCPStore(..., use_libuv=False)`. The older server is slower with thousands of ranks, and otherwise the same.

## Versions and sources

Holds for torch 2.4 to 2.13 without libuv: Windows, and builds from source without USE_LIBUV. Source: torch's
TCPStore.cpp and torch/distributed/rendezvous.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP131", Severity.ERROR)


@log_pattern(r"use_libuv was requested but PyTorch was buil[dt] without libuv support")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The message has one cause."""
    yield Finding(
        "the rendezvous asks for libuv, and this torch was built without it",
        (record.proof(match, "USE_LIBUV=0 where torch has no libuv"),),
        Fix(
            "use the older store",
            command="set USE_LIBUV=0        # cmd; PowerShell: $env:USE_LIBUV=0; elsewhere: export USE_LIBUV=0",
        ),
        record.place,
    )
