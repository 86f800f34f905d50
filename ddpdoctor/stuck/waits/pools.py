"""A rank that waits for the results of a ``multiprocessing.Pool``: whether any of its processes has a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.host.process.waits.wait import Awaited
from ddpdoctor.stuck.looks.spy import stacks
from ddpdoctor.stuck.waits.workers import started_by
from ddpdoctor.watch.user_frames import is_users

if TYPE_CHECKING:
    from ddpdoctor.host.stack import Frame
    from ddpdoctor.stuck.looks.spy import Stack

POOL, WORKER, QUEUES = (
    "/multiprocessing/pool.py",
    "worker",
    ("/multiprocessing/queues.py", "/multiprocessing/connection.py"),
)
SHARED = "/multiprocessing/synchronize.py"


def of_pool(pid: int, stack: Stack) -> Awaited | None:
    """Return that the results will not come, as all processes of the pool wait for a task; None where one has one."""
    inner: list[Frame] = []
    for frame in stack.frames:
        if is_users(frame.file):
            break
        inner.append(frame)
    if stack.others or not any(frame.file.endswith(POOL) for frame in inner):  # a thread can still make tasks
        return None
    idle = [_is_idle(each) for each in stacks(started_by(pid)[1:]).read.values()]
    known = [each for each in idle if each is not None]
    if not known or not all(known):
        return None
    return Awaited(
        f"results of a multiprocessing.Pool, whose {len(known)} processes have all no task: the one that had it is "
        "gone, and the pool has put a new one in its place",
        "find in its output what ended it: a function that is defined after the Pool was made, the kernel for want of "
        "memory, a crash of native code; concurrent.futures.ProcessPoolExecutor raises BrokenProcessPool instead",
        "dmesg -T | grep -i 'killed process'",
    )


def _is_idle(stack: Stack) -> bool | None:
    """Whether a process of a pool waits for a task; None of one that is of no pool."""
    inner: list[Frame] = []
    for frame in stack.frames:
        if frame.file.endswith(POOL) and frame.function.rpartition(".")[2] == WORKER:
            return bool(inner) and all(each.file.endswith((*QUEUES, SHARED)) for each in inner)
        inner.append(frame)
    return None
