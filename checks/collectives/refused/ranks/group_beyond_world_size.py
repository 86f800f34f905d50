"""A group names ranks that this job does not have.

## What happens

`dist.new_group(ranks)` counts from 0 to the world size less one. A list made for eight GPUs fails on four: "Rank 5 is
out of range. Valid ranks are 0 to 3 (world_size=4)", in older versions "the new group's rank should be within the
world_size set by init_process_group", and "the new group's world size should be less or equal to the world size".
Usual reasons: the size of the groups is written into the script, or each host counts its GPUs and the job has fewer
ranks.

## How to be sure

The message gives the rank and the world size. `print(dist.get_world_size(), ranks)` before the call.

## How to mend it

FSDP's HYBRID_SHARD without groups of one's own takes all GPUs of the host for one: "The arg 'group_size' (8) must not
exceed the world size (2)". FULL_SHARD is what two ranks on one host can have; or show them their own GPUs only
(`CUDA_VISIBLE_DEVICES=0,1`).

Start as many ranks as the groups need, or derive the groups from `dist.get_world_size()`. Every rank makes all groups,
in the same order, also those it is not in.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. Source: torch/distributed/distributed_c10d.py,
`_new_group_with_tag`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP747", Severity.ERROR)


@log_pattern(
    r"ValueError: Rank (?P<rank>\d+) is out of range\. Valid ranks are 0 to \d+ \(world_size=(?P<world>\d+)\)"
    r"|[Tt]he new group's rank should be within the (?:the )?world_size set by init_process_group"
    r"|the new group's world size should be less or equal to the world size set by init_process_group"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the rank and the world size where the message does."""
    rank, world = match["rank"], match["world"]
    yield Finding(
        f"new_group asks for rank {rank} of a job of {world} ranks"
        if rank
        else "new_group asks for more ranks than the job has",
        (record.proof(match, f"ranks from 0 to {int(world) - 1}" if world else "ranks below the world size"),),
        Fix(
            "derive the groups from the world size, or start as many ranks as they need",
            diff="-group = dist.new_group(range(8))\n+group = dist.new_group(range(dist.get_world_size()))",
            command="torchrun --standalone --nproc_per_node=8 train.py   # as many as the groups need",
        ),
        record.place,
    )


@log_pattern(r"ProcessGroup\w{1,20}::(?P<name>\w+): invalid root rank: (?P<rank>\d+)")
def of_the_root(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the rank that a collective of all ranks goes to, or comes from."""
    yield Finding(
        f"{match['name']} is told rank {match['rank']} as its {'src' if match['name'] in SENDERS else 'dst'}, and the "
        "group has no such rank",
        (record.proof(match, "a rank below the size of the group"),),
        Fix(
            "name a rank that is there: 0, or the last one",
            diff=f"-src={match['rank']}\n+src=dist.get_world_size() - 1",
        ),
        record.place,
    )


SENDERS = {"broadcast", "scatter"}


@log_pattern(
    r"The arg 'group_size' \((?P<size>\d+)\) must not exceed the world size \((?P<world>\d+)\)"
    r"|The world size \((?P<whole>\d+)\) must be divisible by '?(?:group_size|group_size=)'?[^\n]{0,20}?(?P<part>\d+)"
)
def of_subgroups(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Say whose groups they are: FSDP's own, where hybrid sharding takes all GPUs of the host, or the script's."""
    size, world = match["size"] or match["part"], match["world"] or match["whole"]
    hybrid = "hybrid_shard" in record.text or "_init_intra" in record.text
    yield Finding(
        f"{'HYBRID_SHARD makes' if hybrid else 'the script asks for'} groups of {size} ranks, and the job has {world}"
        + (": it takes each GPU of the host for a rank" if hybrid else ""),
        (record.proof(match, f"groups whose size divides {world}"),),
        Fix(
            "shard over all ranks, or let the ranks see no other GPUs than their own",
            diff="-sharding_strategy=ShardingStrategy.HYBRID_SHARD\n+sharding_strategy=ShardingStrategy.FULL_SHARD",
            command=f"CUDA_VISIBLE_DEVICES={','.join(map(str, range(int(world))))} torchrun --nproc_per_node={world} "
            "train.py",
        )
        if hybrid
        else Fix(
            "derive the size from the world size",
            diff=f"-dist.new_subgroups(group_size={size})\n+dist.new_subgroups(group_size=min({size}, "
            "dist.get_world_size()))",
        ),
        record.place,
    )
