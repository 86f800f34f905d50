"""Processes around the ranks that have told nothing: where a rank is looked for that never joined."""

from __future__ import annotations

import ast
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress

import psutil

from ddpdoctor.source.text.lines import statement_at, tree_of
from ddpdoctor.watch.events import Doing, Position, Sibling, Stalled
from ddpdoctor.watch.events.hang import JOINS
from ddpdoctor.watch.monitor.seen.usage import Usage, usages

PATIENCE = 4  # times as long as a rank that waits has to
LOOK = 0.5  # seconds between two looks at a process
HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver", "-m ddpdoctor")
INIT = 1  # adopts what others left: its children belong to nobody


def on_their_way(event: Stalled, after: float) -> bool:
    """Whether each rank that has not joined imports, or may be a process at work beside the others.

    Frameworks that start the other ranks by themselves do so once the first has imported everything, and a loaded
    machine takes its time. What lasts for much longer is told.
    """
    wait = [each for each in event.ranks if each.doing is Doing.WAITING and each.operation in JOINS]
    come = [each for each in event.ranks if each not in wait]
    missing = event.world_size - len(event.ranks)
    at_work = [each for each in event.siblings if each.busy and not each.launcher]
    if not wait or not (missing or come) or missing > len(at_work):
        return False
    return all(map(_imports, come)) and max(each.seconds for each in wait) < PATIENCE * after


def _imports(position: Position) -> bool:
    site = position.site
    statement = statement_at(tree_of(site.file), site.line) if site is not None else None
    return position.doing is Doing.WORKING and isinstance(statement, (ast.Import, ast.ImportFrom))


def siblings(pids: Iterable[int], launched: Iterable[int] = ()) -> tuple[Sibling, ...]:
    """List the parents of these processes and all that descends from them, of the same interpreter, that live.

    The parents of ``launched`` are torchrun's agent, or the process that has called mp.spawn.
    """
    launchers = {psutil.Process(pid).ppid() for pid in launched if psutil.pid_exists(pid)}
    known = {*pids, os.getpid()}
    found = {each.pid: each for pid in known - {os.getpid()} for each in _family(pid) if each.pid not in known}
    before = usages(found)
    time.sleep(LOOK if found else 0)
    after = usages(found)
    return tuple(Sibling(pid, _works(before.get(pid), after.get(pid)), pid in launchers) for pid in sorted(found))


def _works(before: Usage | None, after: Usage | None) -> bool:
    return before is not None and after is not None and after.works_since(before)


def _family(pid: int) -> Iterator[psutil.Process]:
    """Yield a process's parent, what that has started, and what the process itself has started."""
    with suppress(psutil.Error):
        rank = psutil.Process(pid)
        interpreter, parent = rank.exe(), rank.parent()
        head = parent if parent is not None and parent.pid != INIT else rank
        for each in (head, *head.children(recursive=True)):
            if _is_like(each, interpreter):
                yield each


def _is_like(process: psutil.Process, interpreter: str) -> bool:
    with suppress(psutil.Error):
        return (
            process.exe() == interpreter
            and process.status() != psutil.STATUS_ZOMBIE
            and not any(helper in " ".join(process.cmdline()) for helper in HELPERS)
        )
    return False
