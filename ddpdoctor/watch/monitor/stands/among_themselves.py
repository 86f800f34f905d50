"""Ranks that all stand, none of them in a communication: whether anybody is left who could wake one of them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from ddpdoctor.host.process.system_calls import waits_without_end
from ddpdoctor.host.process.waits.sockets import of_store
from ddpdoctor.source.held import asked_lock
from ddpdoctor.source.text.lines import calls_at, tree_of
from ddpdoctor.source.text.names import resolve
from ddpdoctor.watch.monitor.seen.threads import those_alone
from ddpdoctor.watch.user_frames import is_users

if TYPE_CHECKING:
    from ddpdoctor.host.stack import Frame
    from ddpdoctor.watch.events import Position

THREADS, QUEUE = "/threading.py", "/queue.py"
OF_BARRIER = "_wait"
LOCKS = frozenset({"threading.Lock", "threading.RLock", "threading.Semaphore", "threading.BoundedSemaphore"})
OF_STORE = frozenset({"wait", "get", "multi_get"})


def wait_for_each_other(
    found: Sequence[Position], frames: Mapping[int, Sequence[Frame]], bases: Iterable[Path]
) -> bool:
    """Whether nobody but these ranks, which all stand, could wake one of them; ``bases`` are the paths of their files.

    Each waits without end at a Barrier, a Queue or a lock of Python's own, and has no other thread that runs the
    script's code; or it waits for a store that a rank or its launcher has. None has started a process that could do
    something. What waits within a library can be woken by a thread of that, which is no Python.
    """
    stores = _ports(found)
    if not all(_is_for_ranks(each, frames.get(each.pid, ()), stores) for each in found):
        return False
    alone = those_alone(bases)
    return all(each.pid in alone and not _has_children(each.pid) for each in found)


def _is_for_ranks(position: Position, frames: Sequence[Frame], stores: frozenset[int]) -> bool:
    if position.awaited is None or not frames:
        return False
    if position.awaited.thread:
        return waits_without_end(position.pid) and _is_of_python(frames)
    return position.awaited.port in stores and bool(_calls(frames[0], OF_STORE))


def _is_of_python(frames: Sequence[Frame]) -> bool:
    """Whether the innermost frames are those of a Barrier or a Queue, or the innermost one takes a lock of its file."""
    inner = tuple(takewhile(lambda each: not is_users(each.file), frames))
    if inner:
        at_barrier = inner[-1].file.endswith(THREADS) and any(each.function == OF_BARRIER for each in inner)
        in_queue = inner[-1].file.endswith(QUEUE) and all(each.file.endswith((THREADS, QUEUE)) for each in inner)
        return at_barrier or in_queue
    name = asked_lock(frames[0].file, frames[0].line)
    tree = tree_of(frames[0].file)
    return any(
        isinstance(each.value, ast.Call)
        and resolve(tree, each.value.func) in LOCKS
        and name in map(ast.unparse, each.targets)
        for each in tree.of(ast.Assign)
        if name
    )


def _calls(frame: Frame, methods: frozenset[str]) -> list[ast.Call]:
    if not is_users(frame.file):
        return []
    return [each for each in calls_at(frame.file, frame.line) if getattr(each.func, "attr", "") in methods]


def by_their_stores(found: Iterable[Position]) -> list[Position]:
    """Tell of ranks that wait for a store which the script has made that it is one.

    Of another server of a rank's own the line tells: it calls no method of a store.
    """
    found = list(found)
    stores = _ports(found)
    return [
        replace(each, awaited=of_store(f"port {each.awaited.port}", each.awaited.port))
        if each.awaited is not None and each.awaited.port in stores and _asks_a_store(each)
        else each
        for each in found
    ]


def _asks_a_store(position: Position) -> bool:
    site = position.site
    return site is not None and any(
        getattr(each.func, "attr", "") in OF_STORE for each in calls_at(site.file, site.line)
    )


def _ports(found: Iterable[Position]) -> frozenset[int]:
    return frozenset(port for each in found for port in _stores(each.pid))


def _stores(pid: int) -> Iterator[int]:
    """Yield the ports at which a rank listens, or what has started it."""
    with suppress(psutil.Error):
        rank = psutil.Process(pid)
        for each in (rank, rank.parent()):
            connections = each.net_connections("tcp") if each is not None else ()
            yield from (one.laddr.port for one in connections if one.status == psutil.CONN_LISTEN)


def _has_children(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).children())
    except psutil.Error:
        return True
