"""Two workers give init_rpc the same name.

## What happens

`rpc.init_rpc(name, ...)` collects the names of all ranks, and each must have one of its own: "RPC worker name trainer
is not unique. Workers 1 and 2 share the same name." Every rank raises it, at its own call. Usually each process that
is no parameter server takes a name that has no number in it, or the ranks are taken from LOCAL_RANK, which begins
anew on each host.

## How to be sure

The message gives the name and the two ranks.

## How to mend it

Put the global rank into the name, and call the workers by these names.

    rank = int(os.environ["RANK"])
    rpc.init_rpc("ps" if rank == 0 else f"trainer{rank}", rank=rank, world_size=world_size)

## Versions and sources

Seen with torch 2.13, gloo for the meeting, three ranks. Source: torch/distributed/rpc/__init__.py, `init_rpc`, and
the exchange of names in torch's C++ part, tensorpipe_utils and tensorpipe_agent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP454", Severity.ERROR)


@log_pattern(
    r"RPC worker (?P<what>name|id) (?P<own>[\w:./-]{1,99}) is not unique\. Workers? (?P<one>[\w:./-]{1,99}) and "
    r"(?:[Ww]orker )?(?P<other>[\w:./-]{1,99}) share"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the two, and what they have in common."""
    of_names = match["what"] == "name"
    yield Finding(
        f"ranks {match['one']} and {match['other']} both call themselves {match['own']!r}"
        if of_names
        else f"{match['one']} and {match['other']} both say that they are rank {match['own']}",
        (record.proof(match, "a name, and a rank, of its own for each worker"),),
        Fix(
            "put the global rank into the name" if of_names else "give each worker its global rank",
            diff=f'-rpc.init_rpc("{match["own"]}", rank=rank, world_size=world_size)\n'
            f'+rpc.init_rpc(f"{match["own"]}{{rank}}", rank=rank, world_size=world_size)'
            if of_names
            else '-rank = int(os.environ["LOCAL_RANK"])\n+rank = int(os.environ["RANK"])',
        ),
        record.place,
    )
