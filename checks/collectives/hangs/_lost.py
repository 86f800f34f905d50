"""The rank that all others wait for: who waits, what keeps it, and the lines at which it stands."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from linecache import getline

from ddpdoctor.check import (
    Doing,
    Evidence,
    Position,
    Site,
    Stalled,
    asked_lock,
    calls_at,
    held_locks,
    resolve,
    tree_of,
)

from ._keys import of_key
from ._told import short

BARRIER, LOCK = "threading.Barrier", "threading.Lock"
JOINS = re.compile(r"threading\.(?:join|_wait_for_tstate_lock|Thread\.join)")
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
    where = f" at {short(stands.site)}" if stands and stands.site else ""
    at = f": its worker process {stands.pid} stands still{where}" if stands else ""
    if stands is not None and stands.operation:
        return (
            f": its worker process {stands.pid} waits in {stands.operation} at {short(stands.site)}, and the process "
            "group of a rank does not work in a process that the rank has forked (group-used-in-forked-process)"
        )
    awaited = (stands or lost).awaited
    if awaited is None:  # a signal has stopped the worker, or no more is known of it
        return f", and waits for {lost.awaited.what}{where}" if lost.awaited is not None else at
    if name := barrier_of_threads((stands or lost).site):
        return f"{at}, and waits for {name}, a Barrier of threads: those of other processes never come to it"
    if stands is None and awaited.thread and (line := taken_itself(lost)):
        return f", and waits for a lock that it has taken itself at line {line}"
    if stands is None and awaited.thread and len(lost.threads or ()) == 1 and JOINS.search(lost.function):
        ((name, site),) = lost.threads or ()
        return f", and waits for the end of its thread {name}, which is at {short(site)}"
    key = of_key((stands or lost).site) if "sets the key" in awaited.what else ""
    whom = next((f" (rank {each.rank})" for each in event.ranks if awaited.process == each.pid != 0), "")
    return f"{at}, and waits for {awaited.what}{whom}{key}"


def mend_of(lost: Position, event: Stalled) -> str:
    """Return what is to be done about what a rank waits for: a lock that another rank holds while it waits for it."""
    awaits = next((each.awaited for each in lost.workers), None) or lost.awaited
    holder = next((each for each in event.doing(Doing.WAITING) if awaits and awaits.process == each.pid != 0), None)
    if awaits is not None and holder is not None and awaits.what.startswith("the lock of "):
        return f"have rank {holder.rank} give the lock back before {holder.operation} at {short(holder.site)}"
    return awaits.mend if awaits is not None else ""


def thread_awaited(busy: Position) -> str:
    """Return what a rank waits for whose thread works, while its own line only waits for that; empty where it works."""
    if not JOINS.search(busy.function):
        return ""
    named = [f"{name}, at {short(site)}" for name, site in busy.threads or ()]
    return f", and waits for the end of {f'its thread {named[0]}' if len(named) == 1 else 'a thread of its own'}"


def barrier_of_threads(site: Site | None) -> str:
    """Return the name of the threading.Barrier that a line waits at, where its file makes it; empty for all else."""
    if site is None:
        return ""
    called = [each.func for each in calls_at(site.file, site.line) if isinstance(each.func, ast.Attribute)]
    waits = [ast.unparse(each.value) for each in called if each.attr == "wait"]
    return next((name for name in waits if _is_made_by(site.file, name, BARRIER)), "")


def _is_made_by(file: str, name: str, made: str) -> bool:
    """Whether a line of a file gives a name what this function of Python's returns."""
    tree = tree_of(file)
    return any(
        isinstance(each.value, ast.Call)
        and resolve(tree, each.value.func) == made
        and name in map(ast.unparse, each.targets)
        for each in tree.of(ast.Assign)
    )


def taken_itself(lost: Position) -> int:
    """Return the line at which a rank has taken the lock that it now asks for, by a name of its module; 0 for none."""
    site = lost.site
    name = asked_lock(site.file, site.line) if site is not None and not lost.function else ""
    if site is None or not name.isidentifier() or not _is_made_by(site.file, name, LOCK):
        return 0  # an attribute can be another object's
    callers = [each for each in lost.stack[1:] if each.file == site.file]
    return next((held.line for each in callers for held in held_locks(each.file, each.line) if held.name == name), 0)


def lines(lost: Position) -> Iterator[Evidence]:
    """Yield the source of the lines at which a rank and its workers stand, where it is read from outside."""
    if lost.awaited is not None and lost.awaited.thread and lost.threads == ():
        yield Evidence("no other thread of it runs the script's code", "", f"rank {lost.rank}")
    for site, source in (
        (lost.site, f"rank {lost.rank}"),
        *((each, f"rank {lost.rank}, thread {name}") for name, each in lost.threads or ()),
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
