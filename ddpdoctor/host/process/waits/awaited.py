"""What a process that rests waits for, as the kernel tells it: the system call that its main thread is inside of.

It takes the rights of a debugger; where these are missing, and on other systems,
nothing is known.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ddpdoctor.host.process.system_calls import sleeps
from ddpdoctor.host.process.waits.calls import below, of_call
from ddpdoctor.host.process.waits.traced import traced
from ddpdoctor.host.process.waits.wait import KEY_IS_SET, OF_PROCESSES, SHARED, Awaited

if TYPE_CHECKING:
    from ddpdoctor.host.stack import Frame

LOADER = "torch/utils/data/dataloader.py"
QUEUES = "/multiprocessing/queues.py"
DEBUGGERS = ("/pdb.py", "/bdb.py", "/IPython/terminal/debugger.py", "/ipdb/__main__.py", "/pudb/debugger.py")


PUT = "put in as many items as all processes together take out, for each of them an end too; or get(timeout=60)"


def awaited(pid: int, frames: Sequence[Frame] = (), store: int = 0) -> Awaited | None:
    """Return what a process waits for; None where it does not wait, or nothing is known.

    ``frames`` are those of its stack, as far as they are known; ``store`` is the port of the ranks' store.
    """
    if held := traced(pid):
        return held
    if any(frame.file.endswith(DEBUGGERS) for frame in frames):
        return Awaited(
            "a command at the prompt of a debugger",
            "take the breakpoint out: what is typed does not reach one rank of several",
            typed=True,
        )
    with suppress(OSError, ValueError, IndexError, struct.error):
        found = of_call(pid, store)
        if found and found.thread and frames and frames[0].file.endswith(SHARED):
            return OF_PROCESSES
        return (_of_workers(pid, found, frames) or _of_queue(found, frames)) if found else None
    return None


def _of_queue(found: Awaited, frames: Sequence[Frame]) -> Awaited:
    """Say of a pipe that it is a queue's, where the script takes an item out of one that processes share."""
    takes = any(each.file.endswith(QUEUES) and each.function.endswith("get") for each in frames)
    pipe = found.what.removeprefix("data from ")
    if not takes or pipe == found.what or any(each.file.endswith(LOADER) for each in frames):
        return found
    return found._replace(what=f"an item of a queue, from {pipe}", mend=found.mend or PUT)


def _of_workers(pid: int, found: Awaited, frames: Sequence[Frame]) -> Awaited | None:
    """Say of a pipe that it is that of a loader's workers, where the rank takes a batch: they hold it up."""
    if not found.what.startswith(("data from a pipe", "data from the pipe")):
        return None
    if not any(each.file.replace("\\", "/").endswith(LOADER) for each in frames) or not (workers := below(pid)):
        return None
    named = ", ".join(map(str, workers[:8])) + (f" and {len(workers) - 8} more" if workers[8:] else "")
    return found._replace(
        what=f"a batch from the workers of its data loader ({'processes' if workers[1:] else 'process'} {named})",
        mend="see where the data set stands in the worker; DataLoader(..., timeout=60) makes an error of it",
        command=f"py-spy dump --pid {workers[0]}",
    )


def waits_for_a_sleeper(pid: int) -> bool:
    """Whether a process waits for one that it started, for its end or its output, and that or one below sleeps a while.

    As a script of the shell does that asks again and again for a file or a server.
    """
    found = awaited(pid)
    if found is None or found.process not in below(pid):
        return False
    return any(sleeps(each) for each in (found.process, *below(found.process)))


def asks_the_store(pid: int, store: int) -> bool:
    """Whether a process waits for a key of the ranks' store, at this port, or 0, or of a store of the script's own."""
    found = awaited(pid, store=store)
    return found is not None and KEY_IS_SET in found.what
