"""What keeps a rank whose thread waits for another one of its process, of which the kernel knows no more.

The stacks of the other threads, and the ``with`` statements around their lines, tell who holds the lock.
"""

from __future__ import annotations

import ast
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.host.process.open_files import open_files
from ddpdoctor.host.process.system_calls import waits_for_its_own, waits_for_nobody
from ddpdoctor.host.process.waits.files import locked_files
from ddpdoctor.host.process.waits.wait import (
    OF_NATIVE_THREADS,
    OF_PROCESSES,
    OF_PYTHON,
    Awaited,
    taken_before_fork,
)
from ddpdoctor.source.held import Held, asked_lock, bare_acquires, held_locks
from ddpdoctor.source.text.lines import calls_at, tree_of
from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.values.aliases import are_one
from ddpdoctor.source.vocabulary import COLLECTIVES
from ddpdoctor.stuck.waits.awaits import of_loop
from ddpdoctor.stuck.waits.shared import of_full_queue, of_semaphore
from ddpdoctor.stuck.waits.woken import of_import, of_native, of_primitive
from ddpdoctor.watch.user_frames import is_users

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ddpdoctor.host.stack import Frame
    from ddpdoctor.stuck.looks.spy import Stack

QUEUE = "/queue.py"
POLLS = ("/filelock/", "/portalocker/", "/fasteners/", "/lockfile/")
"""Packages that ask for a lock of a file again and again instead of waiting for it."""
DEEP = 4  # frames
SQLITE = b"SQLite format 3"


@dataclass(frozen=True, slots=True)
class Holder:
    """A lock that a frame of a thread holds."""

    thread: str
    frame: Frame
    held: Held


def of_threads(found: Awaited | None, stack: Stack, pid: int = 0) -> Awaited | None:
    """Return more of what is awaited, where it is a lock, a queue or a thread of the process and the stacks tell it."""
    if found is None:
        return of_loop(stack)
    if not found.thread:
        return (of_primitive(stack) if found is OF_PROCESSES else None) or found
    if stack.ends:
        return Awaited(
            "this thread to end: the script has come to its end, and Python ends a process only after all its threads "
            "that are no daemons",
            "end the thread before the script ends, or start it by threading.Thread(..., daemon=True)",
        )
    told = (
        of_import(stack)
        or of_semaphore(stack)
        or _of_lock(stack)
        or _of_queue(stack)
        or of_full_queue(stack)
        or of_primitive(stack)
    )
    return told or of_native(stack, pid) or found


def of_fork(pid: int, found: Awaited | None, stack: Stack) -> Awaited | None:
    """Return the same of a process that was forked from a rank: it has the rank's locks, and none of its threads."""
    if found is None or not found.thread:
        return found
    if not waits_for_its_own(pid):
        return of_semaphore(stack) or found
    name, frames = _asked(stack)
    if not name and waits_for_nobody(pid) and not any(each in stack.frames[0].file for each in OF_PYTHON):
        return OF_NATIVE_THREADS
    if not name or _holder(name, frames[0], stack) is not None:
        return found
    return taken_before_fork(name)


def of_polled_lock(frames: tuple[Frame, ...], others: Iterable[int]) -> Awaited | None:
    """Return which lock of a file a rank asks for again and again, of those that other processes hold.

    A library that polls opens the file anew each time, so that the kernel names no waiter. Of several that are held it
    is not known which.
    """
    if not any(part in each.file for each in frames[:DEEP] for part in POLLS):
        return None
    held = [(pid, name) for pid in others for name in locked_files(pid)]
    if len(held) != 1:
        return None
    ((pid, name),) = held
    return Awaited(
        f"the lock of {name}, which process {pid} holds",
        f"have process {pid} give the lock back before it waits for the others",
        f"ps -fp {pid}",
        pid,
    )


def of_database(pid: int, others: Iterable[int]) -> Awaited | None:
    """Return which database of SQLite a rank has open that a rank which waits for it has locked: SQLite polls."""
    own = open_files(pid)
    for other in others:
        for name in set(locked_files(other)) & own:
            with suppress(OSError), Path(name).open("rb") as file:
                if file.read(len(SQLITE)) == SQLITE:
                    return Awaited(
                        f"the lock of the database {name}, which process {other} holds",
                        f"have process {other} commit before it waits for the others",
                        f"ps -fp {other}",
                        other,
                    )
    return None


def _of_lock(stack: Stack) -> Awaited | None:
    name, frames = _asked(stack)
    holder = _holder(name, frames[0], stack) if name else None
    if holder is None:
        return _kept_back(name, frames[0], stack) if name else None
    at = f"{Path(holder.frame.file).name}:{holder.held.line}"
    if not holder.thread:
        return Awaited(
            f"{name}, which it has taken itself at {at}",
            f"make it a threading.RLock(), which a thread can take twice, or do not take {name} again inside of it",
        )
    theirs = asked_lock(holder.frame.file, holder.frame.line)
    back = next((each for _, each in _held(frames) if each.name == theirs), None) if theirs else None
    if back is not None:
        return Awaited(
            f"{name}, which its thread {holder.thread} took at {at} and holds, as that waits for {theirs}, which this "
            f"one took at line {back.line}",
            f"take {back.name} and {name} in the same order in all threads",
        )
    inner = f"{Path(holder.frame.file).name}:{holder.frame.line}"
    if meets := _meets(holder.frame):
        return Awaited(
            f"{name}, which its thread {holder.thread} took at {at} and holds while it waits for the other ranks in "
            f"{meets} at {inner}",
            f"have the thread {holder.thread} give {holder.held.name} back before {meets}: end the `with` above it",
        )
    return Awaited(
        f"{name}, which its thread {holder.thread} took at {at} and holds at {inner}",
        f"mend what keeps the thread {holder.thread}, or have it give {name} back before it waits",
    )


def _meets(frame: Frame) -> str:
    """Return the collective of torch that a frame's line calls; empty where it calls none, or several."""
    tree = tree_of(frame.file)
    found = [each for each in calls_at(frame.file, frame.line) if resolve(tree, each.func) in COLLECTIVES]
    return ast.unparse(found[0].func) if len(found) == 1 else ""


def _kept_back(name: str, asks: Frame, stack: Stack) -> Awaited | None:
    """Return that a lock was taken by ``acquire()`` in a function that no thread is in any more, and not given back."""
    there = [frame.line for _, frames in stack.others for frame in frames if frame.file == asks.file]
    taken = bare_acquires(asks.file, name)
    if not taken or any(each.first <= line <= each.last for each in taken for line in there):
        return None
    lines = ", ".join(str(each.line) for each in taken[:4])
    return Awaited(
        f"{name}, which no `with` of its threads holds: {name}.acquire() at line {lines} is given back by no finally",
        f"give it back after an exception, too: with {name}:",
        thread=True,
    )


def _of_queue(stack: Stack) -> Awaited | None:
    inner = [each for each in stack.frames if not is_users(each.file)][:3]
    calls = {each.function.rpartition(".")[2] for each in inner if each.file.endswith(QUEUE)}
    if "put" in calls:
        nobody = "" if stack.others else ", and no other thread of it runs the script's code that could take one out"
        return Awaited(
            f"room in a queue, which is full{nobody}",
            "look for what was to empty it, or put with a limit: put(..., timeout=60)",
        )
    if "join" in calls:
        nobody = "" if stack.others else ", and no other thread of it runs the script's code that could take one out"
        return Awaited(
            f"a task_done() for each item of a queue{nobody}",
            "call it after each get(), in a finally: queue.task_done()",
        )
    if "get" not in calls or stack.others:
        return None
    return Awaited(
        "an item of a queue, and no other thread of it runs the script's code that could put one",
        "look in its output for the exception of the thread that fills the queue, and have that thread put its "
        "exception into the queue, so that the reader raises it",
    )


def _asked(stack: Stack) -> tuple[str, tuple[Frame, ...]]:
    """Return the lock that the innermost frame takes, and the frames of the user's code."""
    frames = tuple(each for each in stack.frames if is_users(each.file))
    first = stack.frames[0] if stack.frames else None
    takes = frames and first is frames[0]
    return (asked_lock(frames[0].file, frames[0].line) if takes else ""), frames


def _holder(name: str, asks: Frame, stack: Stack) -> Holder | None:
    """Return who holds a lock that is known by the same name in the same file: this thread itself has no name."""
    own = tuple(each for each in stack.frames if is_users(each.file))
    for thread, frames in (("", own), *stack.others):
        for frame, held in _held(frames):
            same = frame.file == asks.file and _is_it(name, asks, held, frame)
            if same and not (frame is asks and held.line == asks.line):
                return Holder(thread, frames[0], held)
    return None


def _is_it(name: str, asks: Frame, held: Held, frame: Frame) -> bool:
    """Whether a lock that a frame holds is the one that another frame asks for, by its name or by who made it."""
    if held.name == name:
        return not _are_of_two(name, frame, asks)
    return are_one(asks.file, (name, asks.line), (held.name, held.line))


def _are_of_two(name: str, one: Frame, other: Frame) -> bool:
    """Whether a lock is an attribute of ``self``, and that is another object in another frame."""
    return name.startswith("self.") and bool(one.owner and other.owner) and one.owner != other.owner


def _held(frames: tuple[Frame, ...]) -> Iterator[tuple[Frame, Held]]:
    for frame in frames:
        for held in held_locks(frame.file, frame.line):
            yield frame, held
