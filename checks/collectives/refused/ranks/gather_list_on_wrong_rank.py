"""The list of a gather or scatter is missing on its root, or given on another rank.

## What happens

`dist.gather` fills a list on one rank, `dst`, and `dist.scatter` takes one from `src`. That rank alone passes the
list, all others pass None: "Argument ``gather_list`` must be specified on destination rank", "must NOT be specified on
non-destination ranks". The usual reasons: the list is made on every rank; the condition that makes it tests another
rank than `dst`, which is 0 unless it is given; or it tests the rank within a group, where `dst` is the global rank.

## How to be sure

`print(dist.get_rank(), dst, gather_list is None)` before the call: False on rank `dst` alone.

## How to mend it

Make the list where `dist.get_rank() == dst`, and pass `dst` as well. Where every rank needs the result, use
`all_gather`.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. Source: torch/distributed/distributed_c10d.py,
`_validate_output_list_for_rank` and `scatter`; `gather_object` and `scatter_object_list` say the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP746", Severity.ERROR)


@log_pattern(
    r"Argument ``(?P<list>gather_list|object_gather_list|scatter_list)`` must (?P<no>NOT )?be specified on "
    r"(?:non-)?(?P<root>destination|source) rank"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Report on which side the list is missing or too much."""
    name, root = match["list"], "dst" if match["root"] == "destination" else "src"
    called = (each.function for each in record.frames if not each.is_users and each.function in DIFFS)
    yield Finding(
        f"this rank passes a {name} and is not {root}" if match["no"] else f"rank {root} passes no {name}",
        (record.proof(match, f"a {name} on rank {root}, None on all others"),),
        Fix(
            f"make the list on rank {root} alone, and name that rank in the call",
            diff=DIFFS[next(called, ROOTS[root])],
        ),
        record.place,
    )


ROOTS = {"dst": "gather", "src": "scatter"}
DIFFS = {
    "gather": "+parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]\n"
    "+parts = parts if dist.get_rank() == 0 else None\n+dist.gather(part, parts, dst=0)",
    "gather_object": "+parts = [None] * dist.get_world_size() if dist.get_rank() == 0 else None\n"
    "+dist.gather_object(part, parts, dst=0)",
    "scatter": "+parts = list(whole.chunk(dist.get_world_size())) if dist.get_rank() == 0 else None\n"
    "+dist.scatter(part, parts, src=0)",
    "scatter_object_list": "+parts = whole if dist.get_rank() == 0 else None   # one for each rank\n"
    "+dist.scatter_object_list(part, parts, src=0)   # part = [None]",
}
