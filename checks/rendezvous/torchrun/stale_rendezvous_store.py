"""The rendezvous store holds more processes than the world has.

## What happens

init_process_group and new_group let each rank add one to a counter in the store and wait until it equals the world
size. A counter above the world size can never come down: "store based barrier ... (world_size=4, worker_count=8)",
until the time-out. Somebody else has counted there: an earlier run whose `file://` store was not deleted, a run that
still holds the same MASTER_PORT, or a second start of the same ranks.

## How to be sure

The count in the message is above world_size. It is below it where ranks are missing instead. `ddpdoctor run` says it
of a `file://` store whose file was last written before any rank of this run was started.

## How to mend it

Delete the file, or take a fresh port, and end what is left of the earlier run. A restart by torchrun
or a second launcher around mp.spawn print the same; where the log shows either, that is what is named.

## Versions and sources

Source: torch.distributed.distributed_c10d, _store_based_barrier (worker_count, since torch 2.1 num_workers_joined).
Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    Joining,
    Log,
    Record,
    Severity,
    Started,
    Training,
    log_pattern,
    place,
    shell_join,
    watch,
)

from ..._barrier import BARRIER, RESTART, SPAWN, SURE, barrier, spawned

AILMENT = Ailment("DDP362", Severity.ERROR)
MARGIN = 1.0  # seconds
FILE = r"\bfile:///?[\w./-]+|File already exists: \S+"


@log_pattern(BARRIER, context=(SPAWN, RESTART, FILE))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Compare the count with the world size, where nothing says who counted twice."""
    said = barrier(record, match)
    if said.joined <= said.world or said.is_beyond or said.starts >= SURE or spawned(record, log) or log.first(RESTART):
        return
    file = log.first(FILE)
    yield Finding(
        f"the store counts {said.joined} processes for a world of {said.world}: rank {said.rank} waits for ever",
        (
            record.proof(match, f"a count of {said.world}"),
            *((file[0].proof(file[1], "a file that no earlier run left"),) if file else ()),
        ),
        Fix(
            "start on a free port (with init_method='file://...': delete the file), with nothing left of the last run",
            command="torchrun --standalone --nproc_per_node=2 train.py",
        ),
        record.place,
        ambiguity=None
        if file
        else Ambiguity(
            (
                "a store that an earlier run left: the same port or file:// path",
                "torchrun started the ranks again after a crash; the first failure stands further up",
                "a launcher started the ranks, and each of them calls mp.spawn",
            ),
            'pgrep -af train.py; ss -ltnp | grep "${MASTER_PORT:-29500}"',
        ),
    )


@watch(Joining)
def while_joining(event: Joining, training: Training) -> Iterator[Finding]:
    """Compare the file's time with the start of the first rank, once all ranks have come, on this host."""
    told = {rank: each for rank, each in training.by_rank(Joining).items() if each.address == event.address}
    pids = {each.pid for each in told.values()}
    begun = [each.time for each in training.of(Started) if each.pid in pids]
    old = [each for each in told.values() if each.store_written]
    if len(told) < max(event.world_size, 1) or len(begun) < len(told) or not old:
        return
    first = min(old, key=lambda each: each.store_written)
    age = min(begun) - first.store_written
    if age < MARGIN:
        return
    path = first.address.removeprefix("file://")
    yield Finding(
        f"the ranks meet in {path}, which an earlier run has left: they read its addresses",
        (
            Evidence(
                f"{path} was written {age:.0f} s before the first rank began", "no such file", f"rank {first.rank}"
            ),
        ),
        Fix("delete the file before each start, or take a new name for each run", command=shell_join(["rm", path])),
        place(first.site),
    )
