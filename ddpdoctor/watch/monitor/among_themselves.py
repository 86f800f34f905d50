"""Ranks that all stand, none of them in a communication: whether anybody is left who could wake one of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from ddpdoctor.host.process.system_calls import waits_without_end
from ddpdoctor.watch.monitor.seen.threads import those_alone

if TYPE_CHECKING:
    from ddpdoctor.watch.events import Position


def wait_for_each_other(found: Sequence[Position], bases: Iterable[Path]) -> bool:
    """Whether nobody but these ranks, which all stand, could wake one of them; ``bases`` are the paths of their files.

    Each waits without end for a thread of its own and has no other one that runs the script's code, or it waits for a
    store that a rank or its launcher has; and none has started a process that could do something.
    """
    stores = frozenset(port for each in found for port in _stores(each.pid))
    alone = those_alone(bases)
    return all(each.pid in alone and not _has_children(each.pid) and _is_for_ranks(each, stores) for each in found)


def _is_for_ranks(position: Position, stores: frozenset[int]) -> bool:
    if position.awaited is None:
        return False
    return waits_without_end(position.pid) if position.awaited.thread else position.awaited.port in stores


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
