"""What processes share of ``multiprocessing``: a semaphore whose places are all taken, and a queue that is full."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.host.process.waits.semaphores import semaphore_asked
from ddpdoctor.host.process.waits.wait import Awaited
from ddpdoctor.source.text.bindings import last_name
from ddpdoctor.source.text.lines import calls_at, tree_of
from ddpdoctor.watch.user_frames import is_users

if TYPE_CHECKING:
    from ddpdoctor.host.stack import Frame
    from ddpdoctor.stuck.looks.spy import Stack

QUEUES = "/multiprocessing/queues.py"


def of_semaphore(stack: Stack) -> Awaited | None:
    """Return what a process asks for whose line takes a semaphore, or a lock, of processes: in no frame of Python."""
    first = stack.frames[0] if stack.frames else None
    return semaphore_asked(first) if first is not None and is_users(first.file) else None


def of_full_queue(stack: Stack) -> Awaited | None:
    """Return that a queue between processes is full, and the lines of the file that take something out of it."""
    inner: list[Frame] = []
    for frame in stack.frames:
        if is_users(frame.file):
            return _full(frame) if _puts(inner) else None
        inner.append(frame)
    return None


def _puts(inner: list[Frame]) -> bool:
    return any(each.file.endswith(QUEUES) and each.function.rpartition(".")[2] == "put" for each in inner)


def _full(frame: Frame) -> Awaited:
    called = [each.func for each in calls_at(frame.file, frame.line) if last_name(each.func) == "put"]
    name = next((ast.unparse(each.value) for each in called if isinstance(each, ast.Attribute)), "a queue")
    takes = [
        f"{Path(frame.file).name}:{each.lineno}"
        for each in tree_of(frame.file).of(ast.Call)
        if isinstance(each.func, ast.Attribute) and each.func.attr == "get" and ast.unparse(each.func.value) == name
    ]
    where = f", which takes it out at {' and '.join(takes[:3])}" if takes else ""
    return Awaited(
        f"room in {name}, a queue of processes, which is full: nothing takes an item out of it any more",
        f"look in the output for the exception of the thread or process that empties {name}{where}, and let it go on "
        f"after an item that it cannot use, or end the job; put with a limit: {name}.put(..., timeout=60)",
        thread=True,
    )
