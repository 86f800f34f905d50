"""A launcher started the ranks, and each of them starts ranks again.

torchrun, srun or mpirun start one process for each GPU; a script that then calls `mp.spawn` starts one for each GPU
in every one of them. With 2 tasks and 2 GPUs 4 processes join a world of 2: "store based barrier ... (world_size=2,
worker_count=4)" until the time-out, or "Address already in use", since each task has a rank 0 of its own.

How to be sure: mp.spawn stands in the traceback, and the processes in the store are a multiple of the world size.

How to mend it: one of the two only. Either torchrun, and the script reads RANK and LOCAL_RANK; or one task for each
host (`srun --ntasks-per-node=1`, `python train.py`) and mp.spawn.

Source: torch.multiprocessing documentation, "Spawning subprocesses"; torch.distributed documentation, "Launch
utility". Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor import Card, Doubt, Finding, Fix, Severity
from ddpdoctor.check import sign
from ddpdoctor.explain.records import Log, Record

from ._barrier import BARRIER, SPAWN, barrier, spawned

CARD = Card("DDP403", Severity.ERROR)


@sign(BARRIER, beside=(SPAWN,), explains=("stale-rendezvous-store", "missing-ranks-at-init", "port-in-use"))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """See whether ranks that mp.spawn started are too many, or a rank is beyond the world."""
    said, spawn = barrier(record, match), spawned(record, log)
    if said.joined <= said.world or (spawn is None and not said.is_beyond):
        return
    yield Finding(
        f"{said.joined} processes joined a world of {said.world}: "
        + (
            "a launcher started several, and each called mp.spawn"
            if spawn
            else f"rank {said.rank} is one of more processes than WORLD_SIZE tells of"
        ),
        (
            record.proof(match, f"a count of {said.world}, ranks 0 to {said.world - 1}"),
            *((spawn[0].proof(spawn[1], "mp.spawn or a launcher, not both"),) if spawn else ()),
        ),
        Fix(
            "start one task for each host and let mp.spawn do the rest, or drop mp.spawn and use torchrun",
            command="srun --ntasks-per-node=1 python train.py   # or: torchrun --nproc_per_node=2 train.py",
        ),
        record.place,
        doubt=None
        if spawn
        else Doubt(
            (
                "a launcher started several processes, and each of them starts all ranks again",
                "WORLD_SIZE is set to less than the number of processes",
            ),
            "ps -ww -o pid,ppid,args -C python   # ranks whose parent is a rank: mp.spawn in each",
        ),
    )
