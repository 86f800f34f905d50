"""A collective of a group names a rank, or is called on one, that is not in the group.

## What happens

Within a group of some of the ranks `src` and `dst` are global ranks all the same. `broadcast(t, src=0, group=g)` with
a group of ranks 2 and 3 is refused: "Global rank 0 is not part of group". A rank that is not in the group holds no
group but a placeholder (-100): rooted collectives on it are "Invalid process group specified", and sums are silently
left out. A group that was destroyed, or made before the last init_process_group, is "not registered" as well.

## How to be sure

`print(dist.get_rank(), dist.get_process_group_ranks(group))` on a rank of the group.

## How to mend it

Name the root by its global rank, `dist.get_global_rank(group, 0)`, or with `group_src=0` (torch 2.6 and later). Call
the group's collectives on its ranks alone. Make groups anew after each init_process_group.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. Source: torch/distributed/distributed_c10d.py, `get_group_rank`,
`get_global_rank`, `broadcast`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP748", Severity.ERROR)


@log_pattern(
    r"ValueError: (?:(?P<kind>Global|Group) rank (?P<rank>\d+) is not part of group"
    r"|Group (?P<group>[^\n]{1,200}) is not registered, please create group with torch\.distributed\.new_group"
    r"|(?P<invalid>Invalid process group specified))"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Report a wrong root, or a group that this rank does not have."""
    if match["rank"]:
        yield Finding(
            f"{match['kind'].lower()} rank {match['rank']} is named in a collective of a group that it is not in",
            (record.proof(match, "a rank of the group, by its global number"),),
            ROOT,
            record.place,
        )
        return
    yield Finding(
        "this rank has no such group: it is not one of its members, or the group was destroyed",
        (record.proof(match, "a group that this rank is in"),),
        MEMBERS,
        record.place,
    )


ROOT = Fix(
    "src and dst are global ranks, also within a group",
    diff="-dist.broadcast(tensor, src=0, group=group)\n"
    "+dist.broadcast(tensor, src=dist.get_global_rank(group, 0), group=group)",
)
MEMBERS = Fix(
    "call the group's collectives on its members alone, and make groups after init_process_group",
    diff=" group = dist.new_group(ranks)\n+if dist.get_rank() in ranks:\n"
    "+    dist.broadcast(tensor, src=ranks[0], group=group)",
)
