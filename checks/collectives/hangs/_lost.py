"""The rank that all others wait for: who waits, what keeps it, and the lines at which it stands."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from linecache import getline

from ddpdoctor.check import (
    Doing,
    Evidence,
    Position,
    Site,
    Stalled,
    calls_at,
    resolve,
    tree_of,
)

from ._keys import of_key
from ._told import short

BARRIER = "threading.Barrier"
KERNEL = 'dmesg -T | grep -iE "killed process|out of memory|xid|segfault"'


def who_waits(event: Stalled) -> str:
    """Return who waits for a rank; nobody where all stand, which a look from outside finds, or ranks elsewhere do."""
    waiting = next(iter(event.doing(Doing.WAITING)), None)
    if waiting is not None:
        return f"rank {waiting.rank} waits for it in {waiting.operation} at {short(waiting.site)}"
    if len(event.ranks) < event.world_size:
        return "the ranks of other hosts wait for it as soon as they communicate"
    if ended := event.doing(Doing.ENDED):
        return f"rank {ended[0].rank} has ended" + (f", and {len(ended) - 1} more" if ended[1:] else "")
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
    if name := barrier_of_threads((stands or lost).site):
        return f"{at}, and waits for {name}, a Barrier of threads: those of other processes never come to it"
    key = of_key((stands or lost).site) if "ranks' store" in awaited.what else ""
    whom = next((f" (rank {each.rank})" for each in event.ranks if awaited.process == each.pid != 0), "")
    return f"{at}, and waits for {awaited.what}{whom}{key}"


def barrier_of_threads(site: Site | None) -> str:
    """Return the name of the threading.Barrier that a line waits at, where its file makes it; empty for all else."""
    if site is None:
        return ""
    tree = tree_of(site.file)
    called = [each.func for each in calls_at(site.file, site.line) if isinstance(each.func, ast.Attribute)]
    made = [
        ast.unparse(target)
        for each in tree.of(ast.Assign)
        if isinstance(each.value, ast.Call) and resolve(tree, each.value.func) == BARRIER
        for target in each.targets
    ]
    waits = [ast.unparse(each.value) for each in called if each.attr == "wait"]
    return next((name for name in waits if name in made), "")


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
