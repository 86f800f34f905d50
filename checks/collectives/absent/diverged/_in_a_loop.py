"""Ranks that a loop has parted: in different iterations of it, or one of them past it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    Site,
    Stalled,
    Training,
    place,
)

from ...._findings.few import few
from ...hangs._messages import BY_HANDLE
from ...hangs._told import seen, short, table
from ...hangs.calls._compared import iterations
from ...hangs.source._exits import loop_left_by
from ._accumulated import no_sync_in, unlike_accumulation
from ._alike import left_out_of_loop
from ._went_on import uneven

if TYPE_CHECKING:
    from ddpdoctor.check import Position

    from ...hangs.source._exits import LeftBy


def in_iterations(event: Stalled) -> Finding | None:
    """Return that all ranks wait at one line, and have not come to it equally often; None where they have."""
    found = iterations(event)
    if not found:
        return None
    first = event.ranks[0]
    counters = {rank: ", ".join(f"{name}={value}" for name, value in each.items()) for rank, each in found.items()}
    said = "; ".join(f"rank {rank} at {each}" for rank, each in few(counters.items(), lambda pair: pair[1]))
    return Finding(
        f"all ranks wait in {first.operation} at {short(first.site)}, in different iterations: {said}",
        (
            *(
                Evidence(each, "the same on all ranks", f"rank {rank}, its variables")
                for rank, each in counters.items()
            ),
            *seen(event),
        ),
        uneven(first.operation),
        place(first.site, rank=first.rank),
        ambiguity=Ambiguity(
            (
                "the ranks have different numbers of batches, or one skips an iteration (continue, break)",
                "the network has stalled: the rank behind did not get the last result",
            ),
            "ddpdoctor run -- torchrun ...   # counts the batches of each rank",
        ),
    )


def after_a_loop(event: Stalled, training: Training) -> Finding | None:
    """Return which rank has left a loop that another one is in, where nothing but its end can be why."""
    found = loop_left_by(event, training)
    if found is None:
        return None
    loop = Site(found.loop.file, found.loop.line, "")
    ahead, behind = (next(each for each in event.ranks if each.rank == rank) for rank in (found.rank, found.other))
    if ahead.forwards == behind.forwards > 0 and (unsynced := no_sync_in(loop)):
        return unlike_accumulation(ahead, behind, unsynced, event)
    if found.loop.alike and ahead.operation.startswith(BY_HANDLE):
        return None  # it waits for what it began before, in the loop perhaps: it can as well have called more
    if found.loop.begins:
        return _begun_apart(found, ahead, behind, event)
    if (by_test := left_out_of_loop(found, ahead, behind, event)) is not None:
        return by_test
    return Finding(
        f"rank {ahead.rank} has left the loop at {short(loop)}, and waits in {ahead.operation} at {short(ahead.site)}; "
        f"rank {behind.rank} is in the loop, in {behind.operation} at {short(behind.site)}",
        seen(event),
        uneven(behind.operation),
        place(loop, rank=ahead.rank),
    )


def _begun_apart(found: LeftBy, ahead: Position, behind: Position, event: Stalled) -> Finding:
    """Return a loop that counts from what each rank has found for itself, as of a checkpoint that one of them has."""
    assert found.loop.begins is not None  # noqa: S101 - else another finding is told
    name, given, line = found.loop.begins
    loop = Site(found.loop.file, found.loop.line, "")
    return Finding(
        f"rank {ahead.rank} has left the loop at {short(loop)}, and waits in {ahead.operation} at {short(ahead.site)}; "
        f"rank {behind.rank} is in the loop, in {behind.operation} at {short(behind.site)}: it counts from {name}, "
        f"which each rank finds for itself at line {line}, and rank {ahead.rank} had fewer passes",
        (Evidence(f"{name} = {given}", f"one {name} on all ranks", f"{loop.file}:{line}"), *seen(event)),
        Fix(
            "let rank 0 find it, and tell the others; what is loaded with it has to reach all ranks, too",
            diff=f"+begin = torch.tensor({name})\n+dist.broadcast(begin, src=0)\n+{name} = int(begin)",
        ),
        place(Site(loop.file, line, ""), rank=ahead.rank),
        table=table(event),
        ambiguity=Ambiguity(
            (
                f"{name} is another number on rank {ahead.rank}: a checkpoint that only some ranks found",
                f"rank {behind.rank} has made one collective more in a pass, or rank {ahead.rank} has left one out",
            ),
            f'print(dist.get_rank(), "{name}", {name})   # above the loop',
        ),
    )
