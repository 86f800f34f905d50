"""``ddpdoctor stuck`` from the processes of this host to what was seen of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil

from ddpdoctor.facets import BadTarget
from ddpdoctor.stuck.looks.look import look
from ddpdoctor.stuck.positions import sighting
from ddpdoctor.stuck.ranks.jobs import Job, jobs
from ddpdoctor.stuck.ranks.launchers import is_launcher, with_past
from ddpdoctor.stuck.ranks.own_launcher import with_children
from ddpdoctor.stuck.ranks.processes import pythons
from ddpdoctor.stuck.ranks.self_told import self_told
from ddpdoctor.stuck.ranks.spawned import spawned
from ddpdoctor.watch.monitor.launcher import launcher_waits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddpdoctor.stuck.told.sighting import Sighting
    from ddpdoctor.watch.events import LauncherWaits

WAITS = 10.0  # seconds after which a torchrun without ranks is one that waits
LOOKS = 3  # at a job whose ranks end one after the other
FOREIGN = "Python processes of other users, which only root reads: sudo"


def find(targets: Sequence[int]) -> Job:
    """Return the job that is meant: the one that there is, or that with one of these processes.

    Raises:
        BadTarget: there is none, or several and none is named.
    """
    there, closed = pythons()
    started = {**spawned(there), **with_children(there)}
    apart = {pid: each for pid, each in there.items() if not {pid, each.parent} & {*started}}  # no loader's workers
    others = {pid: each for pid, each in apart.items() if not is_launcher(each.command)}
    found = jobs(there, {**started, **self_told(others)})
    chosen = [each for each in found if _has(each, targets)] if targets else list(found)
    if len(chosen) == 1:
        return chosen[0]
    if chosen:
        listed = "".join(f"\n  ddpdoctor stuck {each.ranks[0].pid}   # {each}" for each in chosen)
        raise BadTarget(f"{len(chosen)} trainings run on this host; name a process of one:{listed}")
    if targets:
        if not psutil.pid_exists(targets[0]):
            raise BadTarget(
                f"there is no process {targets[0]} here: a container numbers its processes by itself; leave the number "
                "out, or run this in the container"
            )
        raise BadTarget(f"process {targets[0]} is no rank of a training, and has started none")
    raise BadTarget(f"no training runs on this host{f'; there are {closed} {FOREIGN}' if closed else ''}")


def waiting_launcher(targets: Sequence[int]) -> LauncherWaits | None:
    """Return a torchrun of several nodes that has started no rank yet: that one which is named, or the only one."""
    found = [launcher_waits(pid, WAITS) for pid in targets or pythons()[0]]
    waiting = {each.pid: told for each in found if each is not None and (told := with_past(each)) is not None}
    return next(iter(waiting.values())) if len(waiting) == 1 else None


def _has(job: Job, targets: Sequence[int]) -> bool:
    """Whether one of the processes is a rank, or has started one, over however many others."""
    ranks = {each.pid for each in job.ranks}
    above = {pid for each in ranks for pid in _above(each)}  # of two nodes on one host each has a launcher
    return bool({job.parent, *ranks, *above} & {*targets})


def _above(pid: int) -> set[int]:
    try:
        return {each.pid for each in psutil.Process(pid).parents()}
    except psutil.Error:
        return set()


def examine(job: Job, seconds: float) -> tuple[Sighting, str]:
    """Look at the ranks of a job for so many seconds; the second is why no Python line is known, empty where one is.

    Where one ends meanwhile, the others are looked at again: what comes of it takes its time.

    Raises:
        BadTarget: the job has ended meanwhile.
    """
    for _ in range(LOOKS):
        seen, said = look([each.pid for each in job.ranks], seconds)
        left = [pid for pid, each in seen.items() if not each.gone]
        if len(left) == len(seen):
            break
        if not left:
            raise BadTarget("the training has ended while it was looked at")
        job = find(left[:1])
    return sighting(job, seen, seconds), said.refused
