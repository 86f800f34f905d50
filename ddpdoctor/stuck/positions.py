"""Makes of what was seen from outside what the watch's checks are shown: where each rank is, and what it does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.stuck.jobs import ENDS_ALL
from ddpdoctor.stuck.workers import workers
from ddpdoctor.watch.events import Communication, Doing, Joined, Joining, Position, Site, Stalled
from ddpdoctor.watch.monitor.operation import JOINING, inner_function, operation_of
from ddpdoctor.watch.training import Training
from ddpdoctor.watch.user_frames import is_users

if TYPE_CHECKING:
    from ddpdoctor.host.stack import Frame
    from ddpdoctor.stuck.jobs import Job, Rank
    from ddpdoctor.stuck.look import Seen
    from ddpdoctor.stuck.spy import Stack


def positions(job: Job, seen: dict[int, Seen], seconds: float) -> tuple[Position, ...]:
    """Return where the ranks of a job are, by rank: those that were seen, and those that this host has no more."""
    here = [_position(each, seen[each.pid], seconds) for each in job.ranks]
    gone = Doing.ENDED if job.launcher in ENDS_ALL else Doing.DIED
    missing = [Position(rank=rank, pid=0, doing=gone, seconds=seconds) for rank in job.missing_here]
    return tuple(sorted((*here, *missing), key=lambda each: each.rank))


def _position(rank: Rank, seen: Seen, seconds: float) -> Position:
    frames = seen.stack.frames
    operation = operation_of(frames)
    doing = _doing(seen, operation, rank.process.backends)
    sites = tuple(_sites(frames))
    site = sites[0] if sites else None
    waits = doing is Doing.WAITING
    return Position(
        rank=rank.identity.rank,
        pid=rank.pid,
        doing=doing,
        seconds=seconds if doing is Doing.WORKING else max(seconds, seen.kernel.rested or 0.0),
        site=site,
        operation=operation if waits else "",
        function=inner_function(frames),
        recent=(Communication(0, 0.0, operation, "", "", site),) if waits and operation != JOINING else (),
        stack=sites,
        values=tuple(_values(seen.stack)),
        workers=workers(rank.pid, seconds) if doing is Doing.STANDING else (),
    )


def _sites(frames: tuple[Frame, ...]) -> Iterator[Site]:
    yield from (Site(each.file, each.line, each.function) for each in frames if is_users(each.file))


def _values(stack: Stack) -> Iterator[tuple[str, int]]:
    """Yield the integers of the user's functions, innermost first."""
    for frame, values in zip(stack.frames, stack.values, strict=True):
        if is_users(frame.file):
            yield from ((f"{frame.function}.{name}", value) for name, value in values)


def _doing(seen: Seen, operation: str, backends: tuple[str, ...]) -> Doing:
    """Decide what a rank does; one that joins asks the store all the time, one that waits for its GPU computes."""
    if seen.gone:
        return Doing.DIED
    if seen.stopped:
        return Doing.STOPPED
    if operation and (operation == JOINING or "nccl" in backends):
        return Doing.WORKING if seen.moves else Doing.WAITING
    if seen.moves or seen.works(alone=bool(operation)):
        return Doing.WORKING
    if operation:
        return Doing.WAITING
    return Doing.ASKING if seen.activity.asks else Doing.STANDING


def told(job: Job, found: tuple[Position, ...]) -> Training:
    """Return what the ranks would have told a watch: which of them have come to their process group, and where."""
    training = Training()
    by_pid = {each.pid: each for each in job.ranks}
    for each in found:
        rank = by_pid.get(each.pid)
        backends = rank.process.backends if rank else ()
        if rank is None or not (backends or each.operation):
            continue
        backend = backends[0] if backends else ""
        size = rank.identity.world_size
        local = rank.identity.local_size if rank.identity.local_size > 0 else None
        training.add(
            Joining(
                pid=each.pid, time=time.time(), rank=each.rank, site=each.site, world_size=size, backend=backend,
                address=rank.identity.address, local_size=local,
            )
        )  # fmt: skip
        if each.operation != JOINING:
            training.add(Joined(pid=each.pid, time=time.time(), rank=each.rank, world_size=size, backend=backend))
    return training


def stalled(job: Job, found: tuple[Position, ...]) -> Stalled:
    """Return the event that the watch's checks of hangs are shown."""
    return Stalled(pid=0, time=time.time(), ranks=found, world_size=job.world_size, outside=True)
