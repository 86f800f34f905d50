"""Ranks that have ended: those that can only have been on this host, and those whose parent has not asked how.

Such a parent waits for another one first, as in a loop of join(). The kernel keeps their number and status until then
(proc(5), "/proc/pid/stat", exit_code).
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from ddpdoctor.host.network import is_loopback
from ddpdoctor.watch.events import Doing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ddpdoctor.stuck.ranks.jobs import Job, Rank

EXIT_CODE = -1  # the last field
ZOMBIE = "Z"
MAPPED = "::ffff:"  # begins an address of IPv4 in a socket of IPv6, which torch's store has


def ended_ranks(job: Job, told: Iterable[int]) -> dict[int, Doing]:
    """Return how the ranks that are missing here came to their end, where as many children of the parent did.

    Which of several is which is not known, but where all ended alike. ``told`` are those that are known to have ended.
    """
    here = {each.identity.rank for each in job.ranks}
    missing = [rank for rank in range(job.world_size) if rank not in here and rank not in {*told}]
    ended = list(_ended_children(job.parent)) if missing else []
    if len(ended) != len(missing) or len(set(ended)) != 1:
        return {}
    return dict.fromkeys(missing, ended[0])


def gone_from_here(job: Job) -> tuple[int, ...]:
    """Return the ranks that are missing where all ranks are of this host: their store is at a loopback address.

    Nobody else comes there. It is no proof that a rank that is missing had ever come.
    """
    there = job.ranks[0].process.environ.get("MASTER_ADDR", "")
    if not (there == "localhost" or is_loopback(there)) or not any(map(_meets_on_loopback, job.ranks)):
        return ()
    here = {each.identity.rank for each in job.ranks}
    return tuple(each for each in range(job.world_size) if each not in here)


def _meets_on_loopback(rank: Rank) -> bool:
    with suppress(psutil.Error):
        every = psutil.Process(rank.pid).net_connections("tcp")
        ends = [each.raddr for each in every if each.status == psutil.CONN_ESTABLISHED]
        return any(each.port == rank.store and is_loopback(each.ip.removeprefix(MAPPED)) for each in ends)
    return False


def _ended_children(pid: int) -> Iterator[Doing]:
    with suppress(OSError, ValueError, IndexError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            if fields[0] == ZOMBIE:
                status = int(fields[EXIT_CODE])
                yield Doing.DIED if os.WIFSIGNALED(status) else Doing.FAILED if status else Doing.ENDED
