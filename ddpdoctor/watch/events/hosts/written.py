"""Where the ranks of one host wait for those of others, or stand, as a line of its log: ``explain`` joins them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ddpdoctor.cluster.lines import RANKS
from ddpdoctor.source.training.iterations import loops_around
from ddpdoctor.watch.events.hang import JOINING, JOINS, Doing, Position, Stalled

if TYPE_CHECKING:
    from ddpdoctor.watch.events.data.passes import EpochStarted
    from ddpdoctor.watch.events.failures import Progress
    from ddpdoctor.watch.events.files import Loaded
    from ddpdoctor.watch.events.process import Joining, Left

DEEP = 12  # lines of a stack
STILL = (Doing.WAITING, Doing.STANDING)
AWAY = (Doing.WORKING, Doing.ASKING)


def as_line(event: Stalled, host: str, epochs: Iterable[EpochStarted] = ()) -> str:
    """Return the line of a host all of whose ranks wait for others, stand, or are elsewhere; else empty.

    Where one of them works while another one waits, the host itself has told of it.
    """
    told = (*STILL, *AWAY) if event.apart else STILL
    still = all(each.doing in told and each.site and each.operation not in JOINS for each in event.ranks)
    if not event.ranks or not still or len(event.ranks) >= event.world_size:
        return ""
    ranks = [
        (
            each.rank, each.operation, round(each.seconds, 1),
            [(s.file, s.line, s.function) for s in each.stack[:DEEP]], each.doing.name,
        )
        for each in event.ranks
    ]  # fmt: skip
    counts = [(each.rank, each.forwards, each.steps) for each in event.ranks if each.forwards or each.steps]
    data = {"host": host, "at": time.time(), "world": event.world_size, "ranks": ranks, "counts": counts}
    data["awaits"] = [(each.rank, *each.awaited[:3]) for each in event.ranks if each.awaited is not None]
    data["loops"] = [loop for each in event.ranks for loop in _loops(each)]
    return RANKS + json.dumps({**data, "loaders": _loaders(epochs)})


def joining_line(event: Stalled, host: str, told: Mapping[int, Joining]) -> str:
    """Return the line of a host whose ranks wait in init_process_group: which they say that they are, and where.

    Empty where none does. Where torchrun's store is, torchrun has told all of them, anew with each start.
    """
    joining = [
        (each.rank, "" if (own := told.get(each.rank)) is None or own.store_port else own.address)
        for each in event.ranks
        if each.operation == JOINING
    ]
    if not joining:
        return ""
    return RANKS + json.dumps(
        {"host": host, "at": time.time(), "world": event.world_size, "ranks": [], "joining": joining}
    )


def end_line(
    host: str, ranks: Iterable[Progress], world: int, loaded: Iterable[Loaded], left: Iterable[Left] = ()
) -> str:
    """Return the line of a host whose ranks are gone: how far each came, whether to its end, and what it had loaded.

    ``left`` are those that were ended before the last line of their script.
    """
    told = sorted(ranks, key=lambda each: each.rank)
    if not told or len(told) >= world:
        return ""
    ended = [(each.rank, each.steps, each.ended) for each in told]
    files = [(each.rank, each.path) for each in loaded if each.rank is not None][:DEEP]
    data = {"host": host, "at": time.time(), "world": world, "ranks": [], "ended": ended, "loaded": files}
    by = [
        (each.rank, each.by, each.handled, *((s.file, s.line, s.function) if (s := each.site) else ()))
        for each in left
        if each.rank is not None and each.by
    ]
    return RANKS + json.dumps({**data, "by": by} if by else data)


def _loaders(epochs: Iterable[EpochStarted]) -> list[tuple[int, int | None, int | None]]:
    """Return how many samples and batches the loader has that each rank trains with, by its last pass."""
    last = {each.rank: (each.length, each.batches) for each in epochs if each.training and each.rank is not None}
    return [(rank, *told) for rank, told in sorted(last.items())]


def goes_on(host: str) -> str:
    """Return the line of a host whose ranks go on, after one that told where they stood."""
    return RANKS + json.dumps({"host": host, "at": time.time(), "world": 0, "ranks": []})


def _loops(position: Position) -> list[tuple[int, str, str, int, int]]:
    """Return the loops that a rank is in: who reads the logs need not have the sources."""
    return [
        (position.rank, site.file, site.function, loop.lineno, loop.end_lineno or loop.lineno)
        for site in position.stack[:DEEP]
        for loop in loops_around(site.file, site.line)
    ][:DEEP]
