"""Makes of what was seen from outside what the watch's checks are shown: where each rank is, and what it does."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.source.iterations import loop_counters
from ddpdoctor.stuck.processes import identities
from ddpdoctor.stuck.sighting import Sighted, Sighting
from ddpdoctor.stuck.workers import workers
from ddpdoctor.watch.events import Communication, Doing, Position, Site
from ddpdoctor.watch.monitor.operation import JOINING, inner_function, operation_of
from ddpdoctor.watch.user_frames import is_users

if TYPE_CHECKING:
    from ddpdoctor.stuck.jobs import Job, Rank
    from ddpdoctor.stuck.look import Seen
    from ddpdoctor.stuck.spy import Stack

LOADER = "torch/utils/data/dataloader.py"


def sighting(job: Job, seen: dict[int, Seen], seconds: float) -> Sighting:
    """Return where the ranks of a job are: those that were seen, and those that this host has no more."""
    host = socket.gethostname()
    here = [
        Sighted(
            _position(each, seen[each.pid], seconds),
            host,
            each.process.backends,
            max(each.identity.local_size, 0),
            _moved(seen[each.pid]),
        )
        for each in job.ranks
    ]
    gone = [Position(rank=rank, pid=0, doing=Doing.ENDED, seconds=seconds) for rank in job.ended_here(identities())]
    missing = [Sighted(each, host) for each in gone]
    ranks = sorted((*here, *missing), key=lambda each: each.position.rank)
    return Sighting(tuple(ranks), job.world_size, job.address, job.ranks[0].identity.run, time.time())


def _position(rank: Rank, seen: Seen, seconds: float) -> Position:
    frames = seen.stack.frames
    operation = operation_of(frames)
    doing = _doing(seen, operation, rank.process.backends)
    below = workers(rank.pid) if doing in {Doing.STANDING, Doing.ASKING} else ()
    if below and any(frame.file.endswith(LOADER) for frame in frames):
        doing = Doing.STANDING  # a loader looks after its workers each five seconds, whether they do anything or not
    sites = tuple(Site(os.path.normpath(each.file), each.line, each.function) for each in frames if is_users(each.file))
    site = sites[0] if sites else None
    waits = doing is Doing.WAITING
    return Position(
        rank=rank.identity.rank,
        pid=rank.pid,
        doing=doing,
        seconds=seconds if doing is Doing.WORKING else max(seconds, seen.rested or 0.0),
        site=site,
        operation=operation if waits else "",
        function=inner_function(frames),
        recent=(Communication(0, 0.0, operation, "", "", site),) if waits and operation != JOINING else (),
        stack=sites,
        counters=tuple(_counters(seen.stack)),
        workers=below,
    )


def _counters(stack: Stack) -> Iterator[tuple[str, int]]:
    """Yield what counts the loops that a rank is in, innermost first; no other variable is anybody's business."""
    for frame, values in zip(stack.frames, stack.values, strict=True):
        if values and is_users(frame.file):
            names = loop_counters(frame.file, frame.line)
            yield from ((f"{frame.function}.{name}", value) for name, value in values if name in names)


def _moved(seen: Seen) -> str:
    """Return how far the loops came that a rank was in at the first look and at the last."""
    if not seen.looks:
        return ""
    before, now = dict(_counters(seen.looks[0])), dict(_counters(seen.stack))
    rose = ((name, before[name], now[name]) for name in now if name in before and now[name] != before[name])
    return ", ".join(f"{name} {first} to {last}" for name, first, last in rose)


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
