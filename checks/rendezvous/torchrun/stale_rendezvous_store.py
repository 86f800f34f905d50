"""The rendezvous store still holds what an earlier start of the ranks left there.

## What happens

init_process_group and new_group let each rank add one to a counter in the store and wait until it equals the world
size. A counter above the world size can never come down: "store based barrier ... (world_size=4, worker_count=8)",
until the time-out. Somebody else has counted there: an earlier run whose `file://` store was not deleted, a run that
still holds the same MASTER_PORT, or a second start of the same ranks.

torchrun keeps one store for all starts of the ranks (`--max-restarts`; since torch 2.4, with the c10d rendezvous).
gloo leaves each rank's address there under one name for all starts: after a restart a rank can read the address of
the start before, where nobody listens any more, "Connection refused, remote=[127.0.0.1]:11655". It is a race: the
next start can be lucky.

## How to be sure

The count in the message is above world_size. It is below it where ranks are missing instead. `ddpdoctor run` says it
of a `file://` store whose file was last written before any rank of this run was started.

## How to mend it

Delete the file, or take a fresh port, and end what is left of the earlier run. For restarts with gloo:
`export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1`, with which torchrun opens a store for each start. A restart by torchrun
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
    Failed,
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

from ..._hosts.barrier import BARRIER, RESTART, SPAWN, SURE, barrier, spawned
from ...network.links.peers._peers import GLOO_REFUSED, loopback

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


AGAIN = "TORCHELASTIC_RESTART_COUNT="


@watch(Failed)
def after_a_restart(event: Failed) -> Iterator[Finding]:
    """Look for a second start of the ranks by torchrun, in which a rank reads an address of the start before."""
    said = next((each for each in event.seen if each[0].startswith(AGAIN)), None)
    found = re.search(GLOO_REFUSED, event.text)
    if said is None or found is None or not loopback(found["old"] or found["new"]):
        return
    yield Finding(
        f"start {int(said[0].removeprefix(AGAIN)) + 1} of the ranks meets in the store of the first: rank {event.rank} "
        "has read an address there at which nobody listens any more",
        (Evidence(found[0], "the address of a rank of this start", f"rank {event.rank}"),),
        Fix(
            "have torchrun open a store of its own for each start; and mend what ended the start before, which stands "
            "further up",
            command="export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1",
        ),
        place(event.site, rank=event.rank),
        ambiguity=Ambiguity(
            (
                "the address is of the start before, which gloo and torchrun's shared store do not tell apart",
                "the other rank of this start has ended meanwhile, of an error of its own",
            ),
            "torchrun --max-restarts=0 ...   # the first failure, and no second start",
        ),
    )
