"""Ranks that a hang shows have never come to init_process_group: who they are, and what is seen of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import (
    INIT_RPC,
    RPC,
    Ambiguity,
    Doing,
    Evidence,
    Finding,
    Fix,
    Joining,
    Left,
    Position,
    Severity,
    Stalled,
    Training,
    place,
)

from ...collectives.hangs._hangs import absent
from ...collectives.hangs._told import short, where
from ...collectives.hangs.reasons._left import evidence, in_words, left_by
from ...collectives.hangs.reasons._meeting import met_apart
from ._apart import apart, listed, two_of_one_rank
from ._inherited import descends, of_a_rank
from ._of_rpc import more_workers_than_started

LOOPBACK = re.compile(r"(?:^|//)(?:localhost|127\.[\d.]+|\[?::1\]?)(?::|$)|^file:")

CALL = "init_process_group"
CALLED = {CALL: "dist.init_process_group()", INIT_RPC: f"{INIT_RPC}(name, rank=rank, world_size=world_size)"}
ELSEWHERE = (
    "another host is still to start its ranks",
    "another host was started with another number of ranks, with ranks of this one, or to meet at another address",
)


def never_joined(event: Stalled, training: Training) -> Iterator[Finding]:
    """Yield which ranks never came to init_process_group, what they do instead, and where they are waited for."""
    if pair := met_apart(event, training):
        yield apart(*pair)
        return
    missing = absent(event, training)
    waiting = event.doing(Doing.WAITING)[0]
    told = training.by_rank(Joining)[waiting.rank]
    call = INIT_RPC if told.backend == RPC else CALL
    message = (
        f"{listed(missing)} of {event.world_size} did not come to {call}; rank {waiting.rank} waits in it "
        f"at {short(waiting.site)}"
    )
    came = Evidence(
        f"{event.world_size - len(missing)} of {event.world_size} ranks are in {call}",
        f"all {event.world_size}",
        f"for {waiting.seconds:.0f} s" + (f", at {told.address}" if told.address else ""),
    )
    elsewhere = [position for position in event.ranks if position.rank in missing]
    twins = [each for each in training.rivals if each.rank == waiting.rank and each.pid != waiting.pid]
    relative = next((each for each in twins if descends(each, told)), None)
    twin = next((each for each in twins if each.pid in {sibling.pid for sibling in event.siblings}), None)
    started = told.launched if told.launched is not None else told.spawned
    if told.backend == RPC and started is not None and started < event.world_size and not elsewhere:
        yield more_workers_than_started(event, waiting, told)
    elif told.launched is not None and told.launched < event.world_size and not elsewhere:
        yield _more_than_launched(event, waiting, told)
    elif (
        told.spawned is not None and told.spawned < event.world_size and LOOPBACK.search(told.address) and not elsewhere
    ):
        yield _more_than_spawned(event, waiting, told)
    elif relative is not None and not elsewhere:
        yield of_a_rank(relative, told)
    elif twin is not None and not elsewhere:
        yield two_of_one_rank(waiting, twin, missing)
    elif rivals := [each for each in training.rivals if _waits_elsewhere(each, told, missing, event)]:
        yield apart(told, rivals[0])
    elif elsewhere:
        yield _seen(message, came, elsewhere, left_by(elsewhere[0].rank, training), call)
    else:
        yield _unseen(message, came, event, waiting, told, call)


def _more_than_launched(event: Stalled, waiting: Position, told: Joining) -> Finding:
    """Name the two numbers: the launcher's is in WORLD_SIZE, whatever init_process_group is told."""
    return Finding(
        f"init_process_group is told {event.world_size} ranks at {short(waiting.site)}, and torchrun has started "
        f"{told.launched}: it waits for ranks that never come",
        (
            Evidence(f"world_size={event.world_size}", f"{told.launched}", f"rank {waiting.rank}, the call"),
            Evidence(f"WORLD_SIZE={told.launched}", f"{event.world_size}", "the environment that torchrun has set"),
        ),
        Fix(
            "leave rank and world size to torchrun, or start as many ranks as the script says",
            diff=f'-dist.init_process_group("{told.backend}", rank=..., world_size={event.world_size})\n'
            f'+dist.init_process_group("{told.backend}")',
            command=f"torchrun --nproc_per_node={event.world_size} train.py",
        ),
        place(waiting.site, rank=waiting.rank),
    )


def _more_than_spawned(event: Stalled, waiting: Position, told: Joining) -> Finding:
    """Name the two numbers: the one that mp.spawn was given, and the one that the processes were told."""
    return Finding(
        f"init_process_group is told {event.world_size} ranks at {short(waiting.site)}, and mp.spawn has started "
        f"{told.spawned} {'processes' if told.spawned != 1 else 'process'}: it waits for ranks that never come",
        (
            Evidence(f"world_size={event.world_size}", f"{told.spawned}", f"rank {waiting.rank}, the call"),
            Evidence(f"nprocs={told.spawned}", f"{event.world_size}", f"mp.spawn; they meet at {told.address}"),
        ),
        Fix(
            "give both the same number",
            diff=f"-mp.spawn(train, args=({event.world_size},), nprocs={told.spawned})\n"
            f"+mp.spawn(train, args=({event.world_size},), nprocs={event.world_size})",
        ),
        place(waiting.site, rank=waiting.rank),
    )


def _waits_elsewhere(other: Joining, told: Joining, missing: tuple[int, ...], event: Stalled) -> bool:
    """Whether a rank that is waited for is there, and waits at the same line for the same number of ranks elsewhere."""
    same = (other.site, other.world_size, other.backend) == (told.site, told.world_size, told.backend)
    is_there = other.rank in missing and other.pid in {each.pid for each in event.siblings}
    return same and is_there and bool(other.address and told.address) and other.address != told.address


def _seen(message: str, came: Evidence, elsewhere: list[Position], left: Left | None, call: str) -> Finding:
    """Return the name of the line at which a rank stands that this host sees, or at which it has left before."""
    first = elsewhere[0]
    if left is not None and first.doing is Doing.ENDED:
        return Finding(
            f"{message}; rank {first.rank} {in_words(left)} at {short(left.site)} before",
            (came, evidence(left)),
            Fix(
                f"let rank {first.rank} join as well, or start as many ranks as have something to do: "
                f"{call} waits for all that were started",
                diff=f"+{CALLED[call]}   # on all ranks, before one of them can leave\n {left.by}",
            ),
            place(left.site, rank=first.rank),
        )
    return Finding(
        message,
        (came, *(Evidence(where(each), f"in {call}", f"rank {each.rank}") for each in elsewhere)),
        Fix(
            f"let rank {first.rank} reach {call}: nothing before it waits for another rank",
            command=f"py-spy dump --pid {first.pid}" if first.doing is Doing.STANDING else "",
        ),
        place(first.site, rank=first.rank),
        severity=Severity.NOTE if first.doing is Doing.ASKING else None,
    )


def _unseen(  # noqa: PLR0913, PLR0917 - what is known of them
    message: str, came: Evidence, event: Stalled, waiting: Position, told: Joining, call: str
) -> Finding:
    """Return what else runs around the ranks that came; no fault yet where a rank can still come."""
    here = told.local_size == event.world_size or LOOPBACK.search(told.address) is not None
    unknown = [each for each in event.siblings if not each.launcher]
    pids = [str(each.pid) for each in unknown]
    context = tuple(
        Evidence(
            f"process {each.pid} {'works' if each.busy else 'stands still'}, and has told no rank", "", "this host"
        )
        for each in unknown
    ) or (Evidence("no other process around them", "a process for each rank", "this host"),)
    if not here and told.spawned is not None:
        expected = f"{event.world_size} on all hosts together"
        context += (Evidence(f"mp.spawn has started {told.spawned} here", expected, "nprocs"),)
    start = f"torchrun --nproc_per_node={event.world_size} train.py"
    if not here:
        message = message.replace(f"did not come to {call}", f"did not come to {call} here", 1)
        start = f"torchrun --nnodes=2 ... train.py   # nnodes * nproc_per_node = {event.world_size}"
    return Finding(
        message,
        (came, *context),
        Fix(f"see what keeps the others from {call}", command=f"py-spy dump --pid {pids[-1]}")
        if pids
        else Fix("start one process for each rank of the world size", command=start),
        place(waiting.site, rank=waiting.rank),
        severity=None if here and not event.siblings else Severity.NOTE,
        ambiguity=Ambiguity(
            (("a rank is still on its way: its imports, its data",) if pids else ())
            + (() if here else ELSEWHERE)
            + ("fewer processes were started than the world size says", f"a rank ended before {call}"),
            "pgrep -af train.py   # on every host: a process for each rank",
        ),
    )
