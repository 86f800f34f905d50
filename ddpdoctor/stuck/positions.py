"""Makes of what was seen from outside what the watch's checks are shown: where each rank is, and what it does."""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import psutil

from ddpdoctor.host.process.connections import peers
from ddpdoctor.host.process.system_calls import sleeps
from ddpdoctor.host.process.waits.awaited import awaited
from ddpdoctor.host.process.waits.frozen import frozen
from ddpdoctor.source.training.iterations import loop_counters
from ddpdoctor.stuck.looks.builds import of_left_lock, waits_for_build
from ddpdoctor.stuck.looks.communication import communication
from ddpdoctor.stuck.looks.gpus import uses
from ddpdoctor.stuck.looks.lines import caught, sites_of, under_way
from ddpdoctor.stuck.looks.roots import root
from ddpdoctor.stuck.ranks.processes import identities
from ddpdoctor.stuck.ranks.unreaped import ended_ranks, gone_from_here
from ddpdoctor.stuck.told.sighting import Sighted, Sighting
from ddpdoctor.stuck.waits.disks import of_disk
from ddpdoctor.stuck.waits.gil import of_gil
from ddpdoctor.stuck.waits.kept import of_database, of_polled_lock, of_threads
from ddpdoctor.stuck.waits.polled import of_poll, only_asks
from ddpdoctor.stuck.waits.pools import of_pool
from ddpdoctor.stuck.waits.stopped import of_stopped
from ddpdoctor.stuck.waits.workers import started_by, workers
from ddpdoctor.watch.events import Communication, Doing, Position, Site
from ddpdoctor.watch.events.hang import JOINS
from ddpdoctor.watch.monitor.seen.operation import inner_function
from ddpdoctor.watch.monitor.stands.answering import answering
from ddpdoctor.watch.user_frames import is_users

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.host.process.waits.wait import Awaited
    from ddpdoctor.stuck.looks.look import Seen
    from ddpdoctor.stuck.looks.spy import Stack
    from ddpdoctor.stuck.ranks.jobs import Job, Rank

BLOCKED = 120.0  # seconds in one disk wait, after which Linux itself says so (kernel.hung_task_timeout_secs)
LOADER = "torch/utils/data/dataloader.py"


def sighting(job: Job, seen: dict[int, Seen], seconds: float) -> Sighting:
    """Return where the ranks of a job are: those that were seen, and those that this host has no more."""
    host = socket.gethostname()
    on_gpus = uses(each.pid for each in job.ranks)
    waiting = [each.pid for each in job.ranks if communication(seen[each.pid].stack.frames)]
    here = [
        Sighted(
            _kept(_position(each, seen[each.pid], seconds), seen[each.pid], waiting, _others(job, seen, each.pid)),
            host,
            each.process.backends,
            max(each.identity.local_size, 0),
            _moved(seen[each.pid]),
            on_gpus.get(each.pid),
        )
        for each in job.ranks
    ]
    ended = dict.fromkeys(job.ended_here(identities()), Doing.ENDED)
    ended |= ended_ranks(job, ended)
    if any(each.position.operation not in {"", *JOINS} and "gloo" in each.backends for each in here):
        ended = dict.fromkeys(gone_from_here(job), Doing.ENDED) | ended  # gloo makes no group before all have come
    gone = [Position(rank=rank, pid=0, doing=doing, seconds=seconds) for rank, doing in ended.items()]
    missing = [Sighted(each, host) for each in gone]
    ranks = sorted((*here, *missing), key=lambda each: each.position.rank)
    others = answering(peers(each.pid for each in job.ranks))
    return Sighting(tuple(ranks), job.world_size, job.address, job.ranks[0].identity.run, time.time(), others)


def _others(job: Job, seen: dict[int, Seen], pid: int) -> list[Stack]:
    """Return the stacks of all other ranks of the training; none where this host does not see all of them."""
    found = [seen[each.pid].stack for each in job.ranks if each.pid != pid]
    return found if len(found) == job.world_size - 1 else []


def _kept(position: Position, seen: Seen, waiting: list[int], beside: list[Stack]) -> Position:
    """Tell of a rank that polls for what never comes: a lock whose holder waits for the others, or is gone; a flag."""
    if gil := of_gil(seen):
        asks = seen.stack.gil is not None and sleeps(position.pid, seen.stack.gil.number)
        return replace(position, doing=Doing.ASKING if asks else Doing.STANDING, awaited=gil)
    if position.doing not in {Doing.WORKING, Doing.ASKING, Doing.STANDING}:
        return position
    others = [pid for pid in waiting if pid != position.pid]
    lock = of_polled_lock(seen.stack.frames, others) or of_left_lock(seen.stack.build)
    if lock is None and position.doing is Doing.ASKING:
        lock = of_database(position.pid, others)
    if lock is None:
        lock = of_poll(seen, beside, all_wait=bool(beside) and len(others) == len(beside))
    if lock is None and (waits_for_build(seen.stack.frames) or only_asks(seen)):
        return replace(position, doing=Doing.ASKING)
    return replace(position, doing=Doing.STANDING, awaited=lock) if lock else position


def _position(rank: Rank, seen: Seen, seconds: float) -> Position:
    frames = seen.stack.frames
    operation = communication(frames)
    thaw = frozen(rank.pid)
    doing = Doing.STANDING if thaw else _doing(seen, operation, rank.process.backends)
    stands = doing in {Doing.STANDING, Doing.ASKING}
    keeps = thaw or (_awaited(rank, seen) if stands else of_disk(rank.store, seen) if doing is Doing.WORKING else None)
    pool = of_pool(rank.pid, seen.stack) if doing is Doing.STANDING and not thaw else None
    if doing is Doing.WORKING and keeps is not None and keeps.process:
        doing = Doing.STANDING  # who has just started a process waits for that as if for a disk: vfork(2)
    family = started_by(keeps.process) if keeps and keeps.process in started_by(rank.pid)[1:] else ()
    if any(seen.ran(each) or sleeps(each) for each in family):
        doing = Doing.ASKING  # it waits for the end of one that gets on, or asks
    below = workers(rank.pid, family) if stands and pool is None and not thaw else ()
    loads = any(frame.file.endswith(LOADER) for frame in frames)
    if doing is Doing.WORKING and loads and not seen.moves:
        below = workers(rank.pid)  # of a rank that waits for its loader these alone can be at work
    elif below and loads:
        # A loader looks after its workers each five seconds, whether they do anything or not.
        doing = Doing.ASKING if any(seen.ran(each.pid) or sleeps(each.pid) for each in below) else Doing.STANDING
    keeps = pool or (None if below else keeps)
    if doing is Doing.STANDING and not thaw:
        keeps = of_stopped(rank.pid, seen.stack) or keeps
    of_threads_alone = keeps.thread if keeps is not None else doing is Doing.STANDING and not below
    if of_threads_alone and any(sleeps(rank.pid, each) for each in seen.stack.threads):
        doing = Doing.ASKING  # by another thread of its own, as far as is known
    sites = tuple(sites_of(frames))
    site = sites[0] if sites else None
    waits = doing is Doing.WAITING
    call = Communication(0, 0.0, operation, "", root(operation, seen.stack), site)
    return Position(
        rank=rank.identity.rank,
        pid=rank.pid,
        doing=doing,
        seconds=seconds if doing is Doing.WORKING else max(seconds, seen.rested or 0.0),
        site=site,
        operation=operation if waits else "",
        function=inner_function(frames),
        recent=(call,) if waits and operation not in JOINS else (),
        stack=sites,
        counters=tuple(_counters(seen.stack)),
        workers=below,
        threads=tuple((name, Site(inner.file, inner.line, inner.function)) for name, (inner, *_) in seen.stack.others),
        awaited=keeps,
        raised=under_way(seen.stack),
        caught=tuple(caught(seen.stack)),
    )


def _awaited(rank: Rank, seen: Seen) -> Awaited | None:
    """Return what a rank waits for; nothing of a lock where no frame is known, since gloo waits in one for others."""
    found = awaited(rank.pid, seen.stack.frames, rank.store)
    if found is not None and found.thread and not seen.stack.frames:
        return None
    return of_threads(found, seen.stack, rank.pid)


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
    if seen.gone or seen.stopped:
        return Doing.DIED if seen.gone else Doing.STOPPED
    if seen.is_traced or (seen.state == psutil.STATUS_DISK_SLEEP and (seen.rested or 0.0) > BLOCKED and not seen.moves):
        return Doing.STANDING
    if operation and (operation in JOINS or "nccl" in backends):
        return Doing.WORKING if seen.moves else Doing.WAITING
    if seen.moves or seen.works(alone=bool(operation)):
        return Doing.WORKING
    if operation:
        return Doing.WAITING
    return Doing.ASKING if seen.asks or sleeps(seen.pid) else Doing.STANDING
