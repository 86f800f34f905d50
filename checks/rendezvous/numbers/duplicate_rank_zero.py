"""Two processes both believe that they are rank 0.

## What happens

Rank 0 opens the store on MASTER_PORT. If every process is told `rank=0` or `--local_rank 0` in the code or on the
command line, the second one finds the port taken by the first: "The server socket has failed to listen on any local
network address ... Address already in use", out of the script's own init_process_group. With one process it works,
and another port does not help.

## How to be sure

The rank is written down in the launch command or in the call; with a port that another program holds,
one process fails as well (master-port-in-use). `ddpdoctor run` sees what each process of the command tells
init_process_group, `mp.spawn`'s among them.

## How to mend it

Take the rank from the environment that torchrun sets, and give no rank on the command line.

## Versions and sources

Source: torch.distributed documentation, "Environment variable initialization"; TCPStore. Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Failed,
    Finding,
    Fix,
    Joining,
    Log,
    Record,
    Severity,
    Training,
    log_pattern,
    place,
    watch,
)

from ._rank_zero import FIXED_ARGUMENT, FIXED_OPTION, fixed_rank

AILMENT = Ailment("DDP357", Severity.ERROR)
TOGETHER = 60  # seconds, in which the processes of a training join
BY_SPAWN = Fix(
    "take the number that spawn gives to the function as its first argument",
    diff='-rank = int(os.environ.get("RANK", 0))\n'
    "+rank = index   # def worker(index, ...), started by mp.spawn(worker, nprocs=2)\n"
    " dist.init_process_group(backend, rank=rank, world_size=world_size)",
)
FROM_LAUNCHER = Fix(
    "give no rank in the call, or the one that the launcher sets",
    diff="-dist.init_process_group(backend, rank=0, world_size=2)\n+dist.init_process_group(backend)",
)
IN_USE = r"server socket has failed to (?:listen|bind)\b"


@log_pattern(IN_USE, context=(FIXED_ARGUMENT, FIXED_OPTION), supersedes=("master-port-in-use",))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Look for a rank that is written down."""
    written = fixed_rank(record, log)
    if written is None:
        return
    yield Finding(
        "every process is told that it is rank 0, so the second one finds the store's port taken by the first",
        (
            record.proof(match, "one process opens the store"),
            written[0].proof(written[1], "the rank that torchrun sets"),
        ),
        Fix(
            "give no rank on the command line or in the call; read what torchrun sets",
            diff='-dist.init_process_group("nccl", rank=0, world_size=2)\n+dist.init_process_group("nccl")\n'
            '+local_rank = int(os.environ["LOCAL_RANK"])',
        ),
        record.place,
    )


@watch(Failed)
def while_training(event: Failed, training: Training) -> Iterator[Finding]:
    """Look for another process of the command that joins as the same rank, where the port is taken."""
    if not re.search(IN_USE, event.text):
        return
    own = next(iter(training.of(Joining, pid=event.pid)), None)
    rivals = [each for each in training.rivals if own is not None and _is_rival(own, each)]
    if own is not None and rivals:
        yield Finding(
            f"two processes of this command both say that they are rank {own.rank} of {own.world_size}: the second one "
            "finds the store's port taken by the first",
            tuple(
                Evidence(
                    f"init_process_group(rank={each.rank}, world_size={each.world_size})",
                    "a rank of its own for each process",
                    f"pid {each.pid}",
                )
                for each in (rivals[-1], own)
            ),
            BY_SPAWN if own.spawned is not None else FROM_LAUNCHER,
            place(own.site),
        )


def _is_rival(own: Joining, other: Joining) -> bool:
    """Whether another process has joined at the same place, at about the same time."""
    same = (other.rank, other.address, other.world_size) == (own.rank, own.address, own.world_size)
    return same and other.pid != own.pid and abs(other.time - own.time) < TOGETHER
