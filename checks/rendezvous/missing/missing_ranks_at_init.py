"""Fewer processes than the world size reached the process group.

## What happens

init_process_group, and new_group after it, wait until all ranks have come: "Timed out initializing process group in
store based barrier ... (world_size=8, worker_count=4)"; torchrun itself ends with RendezvousTimeoutError when fewer
nodes came than --nnodes asks for. Those who wait are well: the ones to look at are those who did not come, since they
never started, died before, or took another way through the code. Two mistakes in the call look the same: a world size
that is larger than what was started (`world_size=4` under a torchrun of two), and two processes that join as one rank
(`rank=node_rank`), so that another rank is nobody's. A process that a rank starts, as an evaluation by
`subprocess.run`, has the rank's variables: what it runs joins as that rank again, and waits for others. `rpc.init_rpc`
waits for as many workers as its `world_size` says in the same way; a parameter server is one of them.

## How to be sure

The count in the message is below world_size. Above it, the store is stale instead. `ddpdoctor run`
sees on its host which ranks have called init_process_group, and the line at which another rank stands; it compares the
world size that the call is told with torchrun's, and names processes that join as the same rank, and which of them has
started the other.

## How to mend it

Find the rank that never started or died first (its own log, the scheduler's), and see that nodes times
processes a node equals the world size. With new_group: every rank makes every group, in the same order, also those
that it is no member of.

## Versions and sources

Source: torch.distributed.distributed_c10d, _store_based_barrier and new_group; torchrun documentation. Holds for torch
2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import (
    HOST_LINE,
    Ailment,
    Ambiguity,
    Failed,
    Finding,
    Fix,
    LauncherWaits,
    Log,
    Record,
    Role,
    Severity,
    Stalled,
    Training,
    log_pattern,
    watch,
)

from ..._hosts.barrier import BARRIER, barrier
from ...collectives.hangs._hangs import on_hang
from ...collectives.hangs._kinds import Hang
from ._inherited import failed_in_its_place
from ._launcher import BEFORE_RANKS, first_node_absent, nodes_counted, nodes_missing, port_is_held, rendezvous_is_full
from ._never_joined import never_joined
from ._of_hosts import CAME, TOLD, came_nowhere, waiting_launchers

AILMENT = Ailment("DDP363", Severity.ERROR)
COMPLETED = r"Completed store-based barrier for key:\s?store_based_barrier_key:(\S+)"
ON_THIS_HOST = (
    r"client socket has (?:timed out after \S+ while trying to connect to|failed to connect to any network address of)"
    r" \(?(?:localhost|127\.[\d.]+|\[?::1\]?)(?:, |:)(\d+)"
)
NO_RUN_ID = r"config has no run_id, generated a random run_id"


@log_pattern(BARRIER, role=Role.GENERIC, context=(COMPLETED,))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Compare the count with the world size; one line of waiting is usual, a time-out or a second line is not."""
    said = barrier(record, match)
    waits = [each for each, found in log.find(BARRIER) if found[1] == match[1] and found[2] == match[2]]
    done = {found[1] for _, found in log.find(COMPLETED)}
    if said.joined >= said.world or said.key in done or not (said.timed_out or len(waits) > 1):
        return
    here = sorted(log.ranks(BARRIER) | {int(found[1]) for _, found in log.find(BARRIER)})
    yield Finding(
        f"{said.joined} of {said.world} ranks reached "
        + ("init_process_group" if said.is_first else f"new_group (group {said.key})")
        + f"; waiting in this log: {', '.join(map(str, here[:8]))}{', ...' if len(here) > 8 else ''}",  # noqa: PLR2004
        (record.proof(match, f"a count of {said.world}"),),
        Fix(
            "find the ranks that did not come: their own output, the scheduler's events, nodes times processes a node",
            command="torchrun --nnodes=2 --nproc_per_node=4 ...   # nnodes * nproc_per_node = world size",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "a rank never started, or died before",
                "a rank is slower than the time-out (download, data preparation, model loading)",
            )
            if said.is_first
            else (
                "a rank or its node died before",
                "ranks make their groups in different orders, or some call new_group not at all",
                "a rank is slower than the time-out",
            ),
            "py-spy dump --pid PID   # of a rank that did not come; none there: it died, and its own log says why",
        ),
    )


@log_pattern(r"RendezvousTimeoutError\b", role=Role.GENERIC, context=(NO_RUN_ID,))
def at_the_rendezvous(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Name torchrun's own wait for nodes, unless each node waits under an id of its own."""
    if log.first(NO_RUN_ID):
        return
    yield Finding(
        "fewer nodes than --nnodes came to the rendezvous before its time-out",
        (record.proof(match, "all nodes join"),),
        Fix(
            "start the same command on every node, with the same --rdzv_id and --rdzv_endpoint, within the time-out",
            command="torchrun --nnodes=2 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_id=job1 "
            "--rdzv_endpoint=HOST0:29400 --rdzv_conf=join_timeout=1800 train.py",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "a node was not started, or its torchrun failed at once",
                "the nodes have different --rdzv_id",
                "the nodes have different --rdzv_endpoint",
            ),
            'ps -ww -C torchrun,python -o args= | grep -o "rdzv[^ ]*"   # on every node: the same',
        ),
    )


@log_pattern(r"wait timeout after (\d+)ms, keys: /default_pg/\d+//cpu//\d+/(\d+)\b", role=Role.GENERIC)
def by_an_address_that_is_not_there(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Gloo's ranks leave their addresses in the store, under their rank, when init_process_group makes the group.

    Rank 0 leaves its own once all ranks have reached its store: where that one is missing, it can be any rank.
    """
    rank, seconds = match[2], int(match[1]) / 1000
    is_first = rank == "0"
    yield Finding(
        f"a rank did not come to init_process_group within {seconds:g} s: rank 0 left no address there, which it does "
        "once all ranks have reached its store"
        if is_first
        else f"rank {rank} did not come to init_process_group within {seconds:g} s",
        (record.proof(match, f"the address of rank {rank} in the store"),),
        Fix(
            f"see what {'each rank' if is_first else f'rank {rank}'} does before init_process_group: its own output "
            "comes first",
            command="ddpdoctor run -- torchrun ...   # names the line at which each rank stands",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                *(("fewer processes were started than world_size says",) if is_first else ()),
                f"{'a rank' if is_first else 'it'} never started, or died before",
                f"{'a rank' if is_first else 'it'} is slower than the time-out (download, data, model loading)",
            ),
            "py-spy dump --pid PID   # of that rank; no process there: it died, and its own log says why",
        ),
    )


@log_pattern(ON_THIS_HOST, role=Role.GENERIC, context=(BEFORE_RANKS,))
def on_one_host(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Take a store on this very host that nobody opened: the rank, or node, 0 that was to open it is missing."""
    if log.first(BEFORE_RANKS):
        yield first_node_absent(record.proof(match, "the torchrun of node rank 0 answers"), match[1], record.place)
        return
    yield Finding(
        f"rank 0 never opened the store on this host, port {match[1]}: the other ranks waited for it",
        (record.proof(match, "the store of rank 0 answers"),),
        Fix(
            "see why rank 0 did not start, or what ended it: its own output comes first",
            command="torchrun --standalone --max_restarts=0 --nproc_per_node=2 train.py",
        ),
        record.place,
        ambiguity=Ambiguity(
            ("rank 0 failed before it opened the store, or was not started", "no process has RANK=0"),
            f"ss -ltnp 'sport = :{match[1]}'   # while this rank waits: nobody listens where rank 0 is missing",
        ),
    )


@log_pattern(
    r"Timed out after (\d+) seconds waiting for (?:client|worker)s\. (\d+)/(\d+) (?:client|worker)s joined",
    role=Role.GENERIC,
)
def at_the_store(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read how many clients rank 0's store has counted; that of a torchrun counts nodes."""
    if re.search(BEFORE_RANKS, record.text):
        proof = record.proof(match, f"{match[3]}/{match[3]} clients joined")
        yield nodes_counted(proof, match[2], match[3], match[1], record.place)
        return
    yield Finding(
        f"{match[2]} of {match[3]} ranks reached the store of rank 0 within {match[1]} s",
        (record.proof(match, f"{match[3]}/{match[3]} clients joined"),),
        Fix(
            "find the ranks that did not come: their own output, the scheduler's events, nodes times processes a node",
            command="torchrun --nnodes=2 --nproc_per_node=4 ...   # nnodes * nproc_per_node = WORLD_SIZE",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "a rank was not started, or died before",
                "WORLD_SIZE is larger than the number of processes",
                "a rank has another MASTER_ADDR or MASTER_PORT, or does not reach this one",
            ),
            "env | grep -E '^(RANK|WORLD_SIZE|MASTER_)'   # in each process: the same but for RANK",
        ),
    )


@log_pattern(TOLD, role=Role.GENERIC, context=(CAME, HOST_LINE))
def as_the_watch_told(record: Record, log: Log) -> Iterator[Finding]:
    """Put together what the watch said on each host."""
    yield from came_nowhere(record, log)


@log_pattern(HOST_LINE, role=Role.GENERIC)
def as_launchers_waited(record: Record, log: Log) -> Iterator[Finding]:
    """Count the hosts whose torchruns wait for others."""
    yield from waiting_launchers(record, log)


@watch(LauncherWaits)
def while_the_launcher_waits(event: LauncherWaits) -> Iterator[Finding]:
    """Report what is seen of the place where they meet: another node can still come, however late."""
    if event.nodes == 1:
        yield rendezvous_is_full(event)
    else:
        yield port_is_held(event) if event.holder else nodes_missing(event)


@watch(Failed)
def in_place_of_a_rank(event: Failed) -> Iterator[Finding]:
    """A process that a rank has started could not join as that rank."""
    if event.within:
        yield failed_in_its_place(event)


@on_hang(Hang.NEVER_JOINED)
def while_training(event: Stalled, training: Training) -> Iterator[Finding]:
    """Report which ranks never came to init_process_group, and what they do instead."""
    yield from never_joined(event, training)
