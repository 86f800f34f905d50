"""A queue of multiprocessing that the ranks fill, and that a line reads only once they have been waited for."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import Joining, Site, last_name, tree_of

if TYPE_CHECKING:
    from ddpdoctor.check import KeptAtEnd, Training, Tree

QUEUES = frozenset({"Queue", "JoinableQueue"})


class ReadLate(NamedTuple):
    """The line that waits for the processes, that which reads the queue below it, and those that fill it."""

    waits: Site
    reads: Site
    fills: tuple[Site, ...]


def read_late(event: KeptAtEnd, training: Training) -> ReadLate | None:
    """Find it in the file in which the rank has joined its group."""
    joined = [each.site for each in training.of(Joining, pid=event.pid) if each.site is not None]
    if not joined:
        return None
    file = joined[-1].file
    tree = tree_of(file)
    fills = tuple(Site(file, each.lineno, "") for each in tree.of(ast.Call) if last_name(each.func) == "put")
    for reads in tree.of(ast.Call):
        name = reads.func.value if isinstance(reads.func, ast.Attribute) and reads.func.attr == "get" else None
        if not isinstance(name, ast.Name) or not _is_queue(tree, name):
            continue
        waits = [each for each in tree.of(ast.Call) if _waits(each) and tree.function(each) is tree.function(reads)]
        before = [each.lineno for each in waits if each.lineno < reads.lineno]
        if before:
            return ReadLate(Site(file, before[-1], ""), Site(file, reads.lineno, ""), fills)
    return None


def _waits(call: ast.Call) -> bool:
    """Whether a call waits for processes: ``mp.spawn``, unless it is told not to, or ``join()`` of one."""
    name = last_name(call.func)
    if name == "join":
        return isinstance(call.func, ast.Attribute) and not call.args
    given = next((each.value for each in call.keywords if each.arg == "join"), None)
    return name in {"spawn", "start_processes"} and not (isinstance(given, ast.Constant) and given.value is False)


def _is_queue(tree: Tree, name: ast.Name) -> bool:
    values = [each.value for each in tree.lookup(name.id, name)]
    return bool(values) and all(isinstance(each, ast.Call) and last_name(each.func) in QUEUES for each in values)
