"""What another thread has to do for one that waits in Python's ``threading``, or for a future; who waits in no Python.

The names of the objects are those of the line that waits.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.host.process.waits.wait import SHARED, Awaited
from ddpdoctor.source.held import held_locks
from ddpdoctor.source.text.bindings import last_name
from ddpdoctor.source.text.lines import calls_at, statement_at, tree_of
from ddpdoctor.source.values.bound import origins
from ddpdoctor.watch.user_frames import is_users

if TYPE_CHECKING:
    from ddpdoctor.host.stack import Frame
    from ddpdoctor.stuck.looks.spy import Stack

FILES = ("/threading.py", "/concurrent/futures/_base.py", SHARED)
POOL = "ThreadPoolExecutor"
IMPORTER = "<frozen importlib._bootstrap>"
WAITS = frozenset("wait wait_for acquire result exception join".split())
LIMIT = "wait with a limit, and raise an error where it runs out, so that the launcher ends the other ranks"


def of_primitive(stack: Stack) -> Awaited | None:
    """Return what wakes a thread in Event, Condition, Semaphore or Barrier of ``threading``, or in Future.result."""
    inner, users = _parted(stack)
    if not inner or not users or not all(frame.file.endswith(FILES) for frame in inner):
        return None
    kind = _kind(inner)
    name = _receiver(users[0]) or kind.lower()
    told = {
        "Event": (f"{name}, an Event, to be set", f"{LIMIT}: if not {name}.wait(timeout=60): raise TimeoutError"),
        "Condition": (
            f"a notify() of {name}, a Condition",
            f"call {name}.notify_all() wherever what is waited for changes, in an except as well",
        ),
        "Barrier": (
            f"{name}, a Barrier, to which not all have come that it was made for",
            "make the Barrier for as many as come to it, and give it a timeout",
        ),
        "Future": _of_future(name, stack),
    }
    if kind == "Semaphore":
        return _of_semaphore(name, users)
    return Awaited(*told[kind], thread=True) if kind in told else None


def of_native(stack: Stack, pid: int) -> Awaited | None:
    """Return which call of a line waits inside of a library that is no Python; None where it can be Python's own."""
    _, users = _parted(stack)
    if not users or stack.frames[0] is not users[0] or _enters(users[0]):
        return None
    calls = [call for call in calls_at(users[0].file, users[0].line) if isinstance(call.func, ast.Attribute)]
    if len(calls) != 1:
        return None
    (called,) = (each.func for each in calls if isinstance(each.func, ast.Attribute))
    if called.attr in WAITS:
        return None
    name = ast.unparse(called.value)
    if called.attr == "get" and _is_simple_queue(users[0].file, name):
        nobody = "" if stack.others else ", and no other thread of it runs the script's code that could put one"
        return Awaited(f"an item of {name}{nobody}", f"{LIMIT}: {name}.get(timeout=60)", thread=True)
    return Awaited(
        f"something inside of {ast.unparse(called)}, which is no Python",
        "look which function of the library it is in",
        f"py-spy dump --native --pid {pid}",
        thread=True,
    )


def of_import(stack: Stack) -> Awaited | None:
    """Return which module a thread waits for that another one is importing; that one's line where it is seen."""
    inner, users = _parted(stack)
    if not users or not inner or inner[0].file != IMPORTER or not inner[0].function.endswith("ModuleLock.acquire"):
        return None
    line = statement_at(tree_of(users[0].file), users[0].line)
    if isinstance(line, ast.Import):
        names = {each.name for each in line.names}
    elif isinstance(line, ast.ImportFrom) and line.module:
        names = {line.module}
    else:
        return None
    parts = {each.rpartition(".")[2] for each in names}
    there = (
        f", in which its thread {thread} is at {Path(each.file).name}:{frames[0].line}"
        for thread, frames in stack.others
        for each in frames
        if each.function == "<module>" and Path(each.file).stem in parts and frames[0].file == each.file
    )
    return Awaited(
        f"the import of {' or '.join(sorted(names))} to end{next(there, ', which another thread has begun')}",
        "start no thread while a module is imported, or do not wait for it there: put that into a function, and call "
        "it after the import",
    )


def _is_simple_queue(file: str, name: str) -> bool:
    """Whether a name is given one: its methods are no Python, and no frame of the queue is seen."""
    return any(
        isinstance(each.value, ast.Call)
        and last_name(each.value.func) == "SimpleQueue"
        and name in map(ast.unparse, each.targets)
        for each in tree_of(file).of(ast.Assign)
    )


def _enters(frame: Frame) -> bool:
    """Whether a ``with`` begins on a frame's line: it can take a lock."""
    return isinstance(statement_at(tree_of(frame.file), frame.line), (ast.With, ast.AsyncWith))


def _of_future(name: str, stack: Stack) -> tuple[str, str]:
    """Return what is awaited, and how to mend it: threads of a pool that all wait for another task of theirs."""
    pool = [frames[0] for thread, frames in stack.others if thread.startswith(POOL)]
    if pool and all(map(_awaits_a_result, pool)):
        return (
            f"the result of {name}, a Future, while all threads of the pool that are at work wait for a task of it",
            "let no task wait for one of the same pool: give these a pool of their own, or more threads",
        )
    return f"the result of {name}, a Future", f"{LIMIT}: {name}.result(timeout=60)"


def _awaits_a_result(frame: Frame) -> bool:
    calls = [each.func for each in calls_at(frame.file, frame.line) if isinstance(each.func, ast.Attribute)]
    return any(each.attr == "result" or (each.attr == "map" and _is_pool(frame.file, each.value)) for each in calls)


def _is_pool(file: str, node: ast.expr) -> bool:
    """Whether an expression holds a pool of threads, by what its file gives it."""
    made = [each for _, each in origins(tree_of(file), node)]
    return bool(made) and all(isinstance(each, ast.Call) and last_name(each.func) == POOL for each in made)


def _of_semaphore(name: str, users: tuple[Frame, ...]) -> Awaited:
    own = next((held for frame in users for held in held_locks(frame.file, frame.line) if held.name == name), None)
    if own is not None and own.line != users[0].line:
        return Awaited(
            f"a place of {name}, a Semaphore, of which it has taken one itself at line {own.line}",
            f"do not take {name} again inside of it, or make it for one place more",
            thread=True,
        )
    return Awaited(
        f"a place of {name}, a Semaphore, all of whose places are taken",
        f"give each place back wherever it was taken, after an exception, too: with {name}:",
        thread=True,
    )


def _parted(stack: Stack) -> tuple[tuple[Frame, ...], tuple[Frame, ...]]:
    """Return the frames of libraries that are innermost, and those of the user's code."""
    count = next((number for number, each in enumerate(stack.frames) if is_users(each.file)), 0)
    return stack.frames[:count], tuple(each for each in stack.frames if is_users(each.file))


def _kind(inner: tuple[Frame, ...]) -> str:
    """Return the class whose method the user has called: Event waits in its Condition."""
    named = [each.function for each in inner]
    for kind in ("Barrier", "Semaphore", "Event", "Future", "Condition"):
        if any(kind in each.partition(".")[0] for each in named):
            return kind
    return ""


def _receiver(frame: Frame) -> str:
    """Return the text of the object that a line waits for, where it is a name."""
    for call in calls_at(frame.file, frame.line):
        inner: ast.expr = call.func
        if (
            isinstance(inner, ast.Attribute)
            and inner.attr in WAITS
            and isinstance(inner.value, (ast.Name, ast.Attribute))
        ):
            return ast.unparse(inner.value)
    return ""
