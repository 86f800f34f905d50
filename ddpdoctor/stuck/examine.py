"""``ddpdoctor stuck`` from the processes of this host to what was seen of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ddpdoctor.facets import BadTarget
from ddpdoctor.stuck.jobs import Job, jobs
from ddpdoctor.stuck.look import look
from ddpdoctor.stuck.own_launcher import with_children
from ddpdoctor.stuck.positions import sighting
from ddpdoctor.stuck.processes import pythons
from ddpdoctor.stuck.spawned import spawned

if TYPE_CHECKING:
    from ddpdoctor.stuck.sighting import Sighting

LOOKS = 3  # at a job whose ranks end one after the other
FOREIGN = "Python processes of other users, which only root reads: sudo"


def find(targets: Sequence[int]) -> Job:
    """Return the job that is meant: the one that there is, or that with one of these processes.

    Raises:
        BadTarget: there is none, or several and none is named.
    """
    there, closed = pythons()
    found = jobs(there, {**spawned(there), **with_children(there)})
    chosen = [each for each in found if _has(each, targets)] if targets else list(found)
    if len(chosen) == 1:
        return chosen[0]
    if chosen:
        listed = "".join(f"\n  ddpdoctor stuck {each.ranks[0].pid}   # {each}" for each in chosen)
        raise BadTarget(f"{len(chosen)} trainings run on this host; name a process of one:{listed}")
    if targets:
        raise BadTarget(f"process {targets[0]} is no rank of a training, and has started none")
    raise BadTarget(f"no training runs on this host{f'; there are {closed} {FOREIGN}' if closed else ''}")


def _has(job: Job, targets: Sequence[int]) -> bool:
    return bool({job.parent, *(each.pid for each in job.ranks)} & {*targets})


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
