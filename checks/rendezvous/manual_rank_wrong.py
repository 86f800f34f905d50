"""The ranks that were set by hand do not count from 0.

## What happens

RANK goes from 0 to WORLD_SIZE - 1, over all hosts. A process with RANK=1 in a world of 1 is no rank 0: nobody opens
the store, and the client waits for MASTER_ADDR until its time-out ("The client socket has timed out"). Typical: RANK
counted from 1, or the number of the node given as RANK where each node has several processes.

## How to be sure

In the command that started it, RANK is not below WORLD_SIZE.

In a source (`ddpdoctor lint`): `world_size` is that of the whole training, and `rank` comes from LOCAL_RANK.

## How to mend it

Count from 0; or let torchrun set them: `--node_rank` is the number of the node, `--nnodes` how many
there are.

## Versions and sources

Source: torch.distributed documentation, "Environment variable initialization" and "TCP initialization". Holds for
torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import INIT, Ailment, Fact, Finding, Fix, Place, Record, Severity, keyword, lint, log_pattern

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP364", Severity.ERROR)
BY_HAND = (
    r"(?<![\w-])RANK=(\d+)\b(?=[^\n]{0,200}?\bWORLD_SIZE=(\d+))|\bWORLD_SIZE=(\d+)\b[^\n]{0,200}?(?<![\w-])RANK=(\d+)\b"
)


@log_pattern(BY_HAND)
def in_the_command(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Compare the two numbers of a command line."""
    rank, world = int(match[1] or match[4]), int(match[2] or match[3])
    if rank < world:
        return
    yield Finding(
        f"RANK={rank} in a world of {world}: ranks count from 0, so nobody is rank 0 and opens the store",
        (record.proof(match, f"RANK from 0 to {world - 1}"),),
        Fix("count from 0, or let torchrun set them", command="torchrun --standalone --nproc_per_node=1 train.py"),
        Place(variable="RANK", rank=record.rank),
    )


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for the local rank where the process group wants the global one."""
    for call in script.calls(INIT):
        rank, size = keyword(call, "rank"), keyword(call, "world_size")
        if rank is None or size is None or script.fact(rank) is not Fact.LOCAL_RANK:
            continue
        if script.fact(size) is Fact.WORLD_SIZE:
            yield Finding(
                f"the process group is given {script.code(rank)}, the local rank, as the rank: on two nodes, two "
                "processes claim each rank, and init_process_group waits for the others until it times out",
                (script.seen(rank, 'rank=int(os.environ["RANK"])'), script.seen(size)),
                Fix("leave out rank and world_size: the process group takes them from the environment"),
                script.place(call),
            )
