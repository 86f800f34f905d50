"""A semaphore, or a lock, of ``multiprocessing`` that a line asks for: all its places are taken."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.host.process.waits.wait import Awaited
from ddpdoctor.source.held import asked_lock, bare_acquires
from ddpdoctor.source.text.bindings import last_name
from ddpdoctor.source.text.lines import statement_at, tree_of
from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.text.tree import FUNCTIONS
from ddpdoctor.source.values.aliases import origins_at

if TYPE_CHECKING:
    from ddpdoctor.host.stack import Frame

SEMAPHORES = frozenset({"Semaphore", "BoundedSemaphore", "Lock", "RLock"})
OF_PROCESSES = ("multiprocessing.", "torch.multiprocessing.")


def semaphore_asked(first: Frame) -> Awaited | None:
    """Return what a process asks for whose innermost frame, of the user's code, takes a semaphore or lock of processes.

    Its file makes it, so that it is known to be one of processes.
    """
    name = asked_lock(first.file, first.line)
    kind = _kind(first, name) if name else ""
    if not kind:
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
