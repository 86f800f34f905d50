"""Where the ranks of one host wait for those of others, or stand, as a line of its log: ``explain`` joins them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddpdoctor.cluster.lines import RANKS
from ddpdoctor.source.training.iterations import loops_around
from ddpdoctor.watch.events.base import Communication, Site
from ddpdoctor.watch.events.hang import JOINING, Doing, Position, Stalled

if TYPE_CHECKING:
    from ddpdoctor.watch.events.data import EpochStarted
    from ddpdoctor.watch.events.files import Loaded
    from ddpdoctor.watch.events.process import Progress

DEEP = 12  # lines of a stack
MOST = 100_000  # ranks
STILL = (Doing.WAITING, Doing.STANDING)


def as_line(event: Stalled, host: str, epochs: Iterable[EpochStarted] = ()) -> str:
    """Return the line of a host all of whose ranks wait for others, or stand; empty where that is not what was seen."""
    still = all(each.doing in STILL and each.site and each.operation != JOINING for each in event.ranks)
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
    data["loops"] = [loop for each in event.ranks for loop in _loops(each)]
    return RANKS + json.dumps({**data, "loaders": _loaders(epochs)})


def end_line(host: str, ranks: Iterable[Progress], world: int, loaded: Iterable[Loaded]) -> str:
    """Return the line of a host whose ranks are gone: how far each came, whether to its end, and what it had loaded."""
    told = sorted(ranks, key=lambda each: each.rank)
    if not told or len(told) >= world:
        return ""
    ended = [(each.rank, each.steps, each.ended) for each in told]
    files = [(each.rank, each.path) for each in loaded if each.rank is not None][:DEEP]
    data = {"host": host, "at": time.time(), "world": world, "ranks": [], "ended": ended, "loaded": files}
    return RANKS + json.dumps(data)


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


def behind_a_loop(lines: Iterable[str]) -> tuple[int, int, Site] | None:
    """Return a rank that waits below a loop in which another one is, that other one, and the loop; None without."""
    inside: list[tuple[int, str, str, int, int]] = []
    frames: list[tuple[int, str, int, str]] = []
    for line in lines:
        try:
            data = json.loads(line)
            inside += [(int(r), str(f), str(n), int(a), int(b)) for r, f, n, a, b in data["loops"]]
            frames += [(int(r), str(f), int(at), str(n)) for r, _, _, stack, *_ in data["ranks"] for f, at, n in stack]
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    for rank, file, function, first, last in inside:
        for other, where, at, name in frames:
            if (where, name) == (file, function) and at > last and other != rank:
                return other, rank, Site(file, first, function)
    return None


def counts_from(lines: Iterable[str]) -> dict[int, tuple[int, int]]:
    """Return how many forwards and steps of optimizers each rank had made, by the last line of its host."""
    found: dict[int, tuple[int, int]] = {}
    for line in lines:
        try:
            for rank, forwards, steps in json.loads(line)["counts"]:
                found[int(rank)] = int(forwards), int(steps)
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    return found


def loaders_from(lines: Iterable[str]) -> dict[int, tuple[int | None, int | None]]:
    """Return how many samples and batches the loader of each rank has, by the last line of its host."""
    found: dict[int, tuple[int | None, int | None]] = {}
    for line in lines:
        try:
            for rank, samples, batches in json.loads(line)["loaders"]:
                found[int(rank)] = samples and int(samples), batches and int(batches)
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    return found


@dataclass(frozen=True, slots=True)
class End:
    """How far a rank of a host came, by the line of its end; ``whole`` where that was the end of its program."""

    rank: int
    host: str
    steps: int
    whole: bool
    loaded: tuple[str, ...] = ()


def ends_from(lines: Iterable[str]) -> dict[int, End]:
    """Return how each rank came to its end, by the last lines of the hosts."""
    found: dict[int, End] = {}
    for line in lines:
        try:
            data = json.loads(line)
            files = [(int(rank), str(path)) for rank, path in data["loaded"]]
            for rank, steps, whole in data["ended"]:
                own = tuple(dict.fromkeys(path for each, path in files if each == rank))
                found[int(rank)] = End(int(rank), str(data["host"]), int(steps), bool(whole), own)
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    return found


def stalled_from(lines: Iterable[str]) -> Stalled | None:
    """Put the last lines of all hosts together; None unless all ranks of the world stood or waited at one moment."""
    hosts: dict[str, tuple[float, int, tuple[Position, ...]]] = {}
    for line in lines:
        if (told := _read(line)) is not None:
            hosts[told[0]] = told[1:]
    hosts = {host: told for host, told in hosts.items() if told[2]}
    ranks = sorted((rank for _, _, each in hosts.values() for rank in each), key=lambda rank: rank.rank)
    worlds = {world for _, world, _ in hosts.values()}
    if len(hosts) < 2 or len(worlds) != 1 or [each.rank for each in ranks] != list(range(*worlds)):  # noqa: PLR2004 - several
        return None
    began = max(at - min(each.seconds for each in positions) for at, _, positions in hosts.values())
    last = min(at for at, _, _ in hosts.values())
    if began > last:
        return None  # one host's ranks had gone on, perhaps, before the other's came to wait
    return Stalled(pid=0, time=last, ranks=tuple(ranks), world_size=len(ranks), outside=True)


def _read(line: str) -> tuple[str, float, int, tuple[Position, ...]] | None:
    try:
        data = json.loads(line)
        positions = tuple(_position(*each) for each in data["ranks"])
        world = int(data["world"])
        return (str(data["host"]), float(data["at"]), world, positions) if world <= MOST else None
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        return None


def _position(rank: Any, operation: Any, seconds: Any, lines: Any, doing: Any = Doing.WAITING.name) -> Position:
    waits = Doing[doing] is Doing.WAITING
    stack = tuple(Site(str(file), int(line), str(function)) for file, line, function in lines)
    return Position(
        rank=int(rank), pid=0, doing=Doing[doing], seconds=float(seconds), site=stack[0], operation=str(operation),
        recent=(Communication(0, 0.0, str(operation), "", "", stack[0]),) if waits else (), stack=stack,
    )  # fmt: skip
