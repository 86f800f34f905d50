"""What processes share of ``multiprocessing``: a semaphore whose places are all taken, and a queue that is full."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.host.process.waits.wait import Awaited
from ddpdoctor.source.held import asked_lock, bare_acquires
from ddpdoctor.source.text.bindings import last_name
from ddpdoctor.source.text.lines import calls_at, statement_at, tree_of
from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.text.tree import FUNCTIONS
from ddpdoctor.stuck.waits.aliases import origins_at
from ddpdoctor.watch.user_frames import is_users

if TYPE_CHECKING:
    from ddpdoctor.host.stack import Frame
    from ddpdoctor.stuck.looks.spy import Stack

SEMAPHORES = frozenset({"Semaphore", "BoundedSemaphore", "Lock", "RLock"})
OF_PROCESSES = ("multiprocessing.", "torch.multiprocessing.")
QUEUES = "/multiprocessing/queues.py"


def of_semaphore(stack: Stack) -> Awaited | None:
    """Return what a process asks for where its line takes a semaphore, or a lock, of processes: in no frame of Python.

    Its file makes it, so that it is known to be one of processes.
    """
    first = stack.frames[0] if stack.frames else None
    name = asked_lock(first.file, first.line) if first is not None and is_users(first.file) else ""
    kind = _kind(first, name) if first is not None and name else ""
    if first is None or not kind:
        return None
    if not _gives_back(first, name):
        return Awaited(
            f"a release() of {name}, a {kind} of processes",
            f"look what keeps the process that is to release it; wait with a limit: {name}.acquire(timeout=60)",
            thread=True,
        )
    bare = [each.line for each in bare_acquires(first.file, name)]
    lines = f": {name}.acquire() at line {', '.join(map(str, bare[:4]))} is given back by no finally" if bare else ""
    what = f"a place of {name}, a {kind} of processes, all of whose places are taken{lines}"
    if kind.endswith("Lock"):
        what = f"{name}, a {kind} of processes, which another one has taken{lines}"
    return Awaited(what, f"give it back on each way out of the function: with {name}:", thread=True)


def _gives_back(frame: Frame, name: str) -> bool:
    """Whether the function that takes it gives it back, too: by ``with``, or by ``release()``."""
    tree = tree_of(frame.file)
    at = statement_at(tree, frame.line)
    if at is None or isinstance(at, ast.With):
        return True
    function = next((each for each in tree.above(at) if isinstance(each, FUNCTIONS)), tree.module)
    return any(
        isinstance(each, ast.Attribute) and ast.unparse(each) == f"{name}.release" for each in ast.walk(function)
    )


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


def _kind(frame: Frame, name: str) -> str:
    """Return the class of a semaphore or lock of processes that a name of a file holds; empty for all else."""
    tree = tree_of(frame.file)
    made = (each for each in origins_at(tree, name, frame.line) if isinstance(each, ast.Call))
    kinds = {_made_as(each.func, resolve(tree, each.func)) for each in made}
    return kinds.pop() if len(kinds) == 1 else ""


def _made_as(function: ast.expr, path: str | None) -> str:
    name = last_name(function)
    of_context = isinstance(function, ast.Attribute) and "get_context" in ast.unparse(function.value)
    is_one = (path or "").startswith(OF_PROCESSES) or of_context
    return name if is_one and name in SEMAPHORES else ""
