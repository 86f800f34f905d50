"""Processes that a rank has started and that stand still: a data loader's workers, in the user's code."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import psutil

from ddpdoctor.host.process.waits.awaited import awaited
from ddpdoctor.host.stack import of_worker
from ddpdoctor.stuck.looks.communication import communication
from ddpdoctor.stuck.looks.spy import stacks
from ddpdoctor.stuck.waits.kept import of_fork
from ddpdoctor.watch.events import Site, Worker
from ddpdoctor.watch.user_frames import is_users

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddpdoctor.stuck.looks.spy import Stack

MOST = 64  # that are looked into


def started_by(pid: int) -> list[int]:
    """Return a process and those below it."""
    with suppress(psutil.Error):
        return [pid, *(each.pid for each in psutil.Process(pid).children(recursive=True)[:MOST])]
    return [pid]


def workers(pid: int, alone: Sequence[int] = ()) -> tuple[Worker, ...]:
    """Return the processes below a rank that stands which are in the user's code: they have used no processor.

    ``alone`` are those that it waits for, where that is known: others do not keep it.
    """
    below = list(alone) or started_by(pid)[1:]
    found = []
    for each, stack in stacks(below).read.items() if below else ():
        site = _site(stack)
        if site is not None:
            operation = communication(stack.frames) if _is_copy(each, pid) else ""
            own = replace(stack, frames=of_worker(stack.frames))
            found.append(Worker(each, site, of_fork(each, awaited(each, stack.frames), own), operation))
    return tuple(found)


def _is_copy(pid: int, of: int) -> bool:
    """Whether a process was forked from another one: what is spawned has a command of its own."""
    with suppress(psutil.Error):
        return psutil.Process(pid).cmdline() == psutil.Process(of).cmdline()
    return False


def _site(stack: Stack) -> Site | None:
    users = (
        each for each in of_worker(stack.frames) if is_users(each.file) and not each.file.startswith("<")
    )  # python -c: a helper's
    return next((Site(each.file, each.line, each.function) for each in users), None)
