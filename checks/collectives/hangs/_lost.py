"""The rank that all others wait for: who waits, what keeps it, and the lines at which it stands."""

from __future__ import annotations

from collections.abc import Iterator
from linecache import getline

from ddpdoctor.check import (
    Doing,
    Evidence,
    Position,
    Stalled,
)

from ._keys import of_key
from ._told import short

KERNEL = 'dmesg -T | grep -iE "killed process|out of memory|xid|segfault"'


def who_waits(event: Stalled) -> str:
    """Return who waits for a rank; nobody where all stand, which a look from outside finds, or ranks elsewhere do."""
    waiting = next(iter(event.doing(Doing.WAITING)), None)
    if waiting is not None:
        return f"rank {waiting.rank} waits for it in {waiting.operation} at {short(waiting.site)}"
    if len(event.ranks) < event.world_size:
        return "the ranks of other hosts wait for it as soon as they communicate"
    return "no rank waits for it" + (", all stand still" if len(event.ranks) > 1 else "")


def what_keeps(lost: Position, event: Stalled) -> str:
    """Return what a rank that stands waits for: a worker process of its own, which stands as well, or anything else."""
    stands = next(iter(lost.workers), None)
    at = f": its worker process {stands.pid} stands still at {short(stands.site)}" if stands else ""
    if stands is not None and stands.operation:
        return (
            f": its worker process {stands.pid} waits in {stands.operation} at {short(stands.site)}, and the process "
            "group of a rank does not work in a process that the rank has forked (group-used-in-forked-process)"
        )
    awaited = (stands or lost).awaited
    if awaited is None:
        return at
    key = of_key((stands or lost).site) if "ranks' store" in awaited.what else ""
    whom = next((f" (rank {each.rank})" for each in event.ranks if awaited.process == each.pid != 0), "")
    return f"{at}, and waits for {awaited.what}{whom}{key}"


def lines(lost: Position) -> Iterator[Evidence]:
    """Yield the source of the lines at which a rank and its workers stand, where it is read from outside."""
    if lost.awaited is not None and lost.awaited.thread and not lost.threads:
        yield Evidence("no other thread of it runs the script's code", "", f"rank {lost.rank}")
    for site, source in (
        (lost.site, f"rank {lost.rank}"),
        *((each, f"rank {lost.rank}, thread {name}") for name, each in lost.threads),
        *((each.site, f"PID {each.pid}") for each in lost.workers),
    ):
        if lost.stack and site is not None and (text := getline(site.file, site.line).strip()):
            yield Evidence(text, "", f"{source}, {short(site)}")


REVIVE = {
    Doing.STOPPED: "kill -CONT {pid}",
    Doing.DIED: 'dmesg -T | grep -iE "killed process|out of memory|segfault"',
    Doing.STANDING: "py-spy dump --pid {pid}",
    Doing.FAILED: "",
}
