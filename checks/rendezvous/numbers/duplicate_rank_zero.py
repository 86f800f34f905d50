"""Two processes both believe that they are rank 0.

## What happens

Rank 0 opens the store on MASTER_PORT. If every process is told `rank=0` or `--local_rank 0` in the code or on the
command line, the second one finds the port taken by the first: "The server socket has failed to listen on any local
network address ... Address already in use", out of the script's own init_process_group. With one process it works,
and another port does not help.

## How to be sure

The rank is written down in the launch command or in the call; with a port that another program holds,
one process fails as well (master-port-in-use). `ddpdoctor run` sees what each process of the command tells
init_process_group, `mp.spawn`'s among them. `ddpdoctor check`, started by the launcher in place of the script (`mpirun
-np 2 ddpdoctor check`), compares RANK with the number that Open MPI, MPICH or Slurm has given the process.

## How to mend it

Take the rank from the environment that torchrun sets, and give no rank on the command line.

## Versions and sources

Source: torch.distributed documentation, "Environment variable initialization"; TCPStore. Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Failed,
    Finding,
    Fix,
    Joining,
    Log,
    NotRun,
    Place,
    Record,
    Severity,
    Training,
    log_pattern,
    place,
    probe,
    watch,
)

from ._beside_the_launcher import beside_the_launcher
from ._rank_zero import FIXED_ARGUMENT, FIXED_OPTION, fixed_rank

if TYPE_CHECKING:
    from ddpdoctor.check import Facts

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


@probe
def in_the_environment(facts: Facts) -> Iterator[Finding]:
    """Compare RANK with the number that the launcher of several processes has given this one.

    Where WORLD_SIZE is 1, each can be meant to be a training of its own.
    """
    found = beside_the_launcher(facts.environ)
    if found is None:
        raise NotRun("this is no process that Open MPI, MPICH or Slurm has started")
    rank, world = (facts.environ.get(name, "").strip() for name in ("RANK", "WORLD_SIZE"))
    alone = world == "1"
    if rank != "0" or found.rank == 0 or world not in {"1", str(found.size)}:
        return  # a batch script of Slurm has the number 0 itself, whatever its tasks are
    yield Finding(
        f"RANK=0 and WORLD_SIZE=1 in process {found.rank} of {found.size} of {found.launcher}: each of them is a "
        "training of its own"
        if alone
        else f"RANK=0 in the process that {found.launcher} has started as number {found.rank} of {found.size}: "
        f"{found.size} processes take themselves for rank 0",
        (
            Evidence(f"RANK=0, WORLD_SIZE={world}", f"RANK={found.rank}, WORLD_SIZE={found.size}", "environment"),
            Evidence(f"{found.rank_name}={found.rank}, {found.size_name}={found.size}", "", "environment"),
        ),
        Fix("do not export RANK for all: set it in each process from the launcher's number", command=found.exports),
        Place(variable="RANK"),
        severity=Severity.NOTE if alone else None,
    )


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
    if event.within or not re.search(IN_USE, event.text):
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
