"""``ddpdoctor stuck`` from the processes of this host to the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.facets import BadTarget
from ddpdoctor.stuck.jobs import Job, jobs
from ddpdoctor.stuck.look import look
from ddpdoctor.stuck.positions import positions, stalled, told
from ddpdoctor.stuck.processes import pythons
from ddpdoctor.stuck.spawned import spawned
from ddpdoctor.stuck.verdict import Verdict, verdict

if TYPE_CHECKING:
    from ddpdoctor.facets import Check
    from ddpdoctor.watch.events import Position

FOREIGN = "Python processes of other users, which only root reads: sudo"


@dataclass(frozen=True, slots=True)
class Examined:
    """One job, where its ranks are, and the verdict; ``refused`` says why no Python line is known."""

    job: Job
    ranks: tuple[Position, ...]
    verdict: Verdict
    refused: str
    seconds: float


def find(targets: Sequence[int]) -> Job:
    """Return the job that is meant: the one that there is, or that with one of these processes.

    Raises:
        BadTarget: there is none, or several and none is named.
    """
    there, closed = pythons()
    found = jobs(there, spawned(there)[0])
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


def examine(job: Job, checks: Iterable[Check], seconds: float) -> Examined:
    """Look at the ranks of a job for so many seconds, and ask the checks."""
    seen, said = look([each.pid for each in job.ranks], seconds)
    found = positions(job, seen, seconds)
    return Examined(job, found, verdict(stalled(job, found), told(job, found), checks, seconds), said.refused, seconds)
