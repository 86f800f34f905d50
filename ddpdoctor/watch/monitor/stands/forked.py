"""Worker processes of a data loader that no rank will hear of again: forked while a lock was taken, they wait for it.

A forked process has one thread. Where that waits without end for another thread of its own process, nobody is there
who could wake it, however long the rank waits for its batch. One that waits without end for another process, as for a
semaphore of multiprocessing, is told as well where the rank and all that it has started have done nothing for so long.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from ddpdoctor.host.process.system_calls import waits_for_nobody, waits_for_other_processes
from ddpdoctor.host.process.waits.awaited import LOADER
from ddpdoctor.host.process.waits.semaphores import semaphore_asked
from ddpdoctor.host.process.waits.wait import OF_NATIVE_THREADS, OF_PROCESSES, OF_PYTHON, Awaited, taken_before_fork
from ddpdoctor.host.stack import of_worker
from ddpdoctor.source.held import asked_lock
from ddpdoctor.watch.events import Worker
from ddpdoctor.watch.monitor.seen.stacks import dump_of_fork
from ddpdoctor.watch.user_frames import is_users, users_sites

if TYPE_CHECKING:
    from ddpdoctor.host.stack import Frame


def kept_workers(pid: int, base: Path, frames: Sequence[Frame]) -> tuple[Worker, ...]:
    """Return those workers of a rank whose stack is in a loader; ``base`` is the path of its files."""
    if not any(each.file.replace("\\", "/").endswith(LOADER) for each in frames):
        return ()
    kept = ((each, waits_for_other_processes(each)) for each in _children(pid))
    return tuple(_worker(each, base, shared=shared) for each, shared in kept if shared or waits_for_nobody(each))


def _children(pid: int) -> list[int]:
    with suppress(psutil.Error):
        return [each.pid for each in psutil.Process(pid).children()]
    return []


def _worker(pid: int, base: Path, *, shared: bool) -> Worker:
    frames = of_worker(dump_of_fork(pid, base))
    sites = users_sites(frames)
    return Worker(pid, next(iter(sites), None), _of_processes(frames) if shared else _awaited(frames))


def _of_processes(frames: Sequence[Frame]) -> Awaited:
    """Return which semaphore, or lock, of processes it is, where the innermost line takes one."""
    inner = frames[0] if frames else None
    return (semaphore_asked(inner) if inner is not None and is_users(inner.file) else None) or OF_PROCESSES


def _awaited(frames: Sequence[Frame]) -> Awaited:
    """Return which lock it is, where the innermost line takes one."""
    inner = frames[0] if frames else None
    name = asked_lock(inner.file, inner.line) if inner is not None and is_users(inner.file) else ""
    if not name and inner is not None and not any(each in inner.file for each in OF_PYTHON):
        return OF_NATIVE_THREADS
    return taken_before_fork(name or "a lock")
