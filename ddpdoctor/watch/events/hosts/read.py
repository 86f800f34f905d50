"""The lines in the logs of several hosts that tell of their ranks, read again: what each saw is put together."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ddpdoctor.host.process.waits.wait import Awaited
from ddpdoctor.watch.events.base import Communication, Site
from ddpdoctor.watch.events.hang import Doing, Position, Stalled
from ddpdoctor.watch.events.process import Left

MOST = 100_000  # ranks


def joining_from(lines: Iterable[str]) -> dict[str, tuple[int, dict[int, str]]]:
    """Return of each host whose last line is of ranks that join how many they wait for, which they are, and where."""
    found: dict[str, tuple[int, dict[int, str]]] = {}
    for line in lines:
        try:
            data = json.loads(line)
            host = str(data["host"])
            found.pop(host, None)
            found[host] = int(data["world"]), {int(rank): str(address) for rank, address in data["joining"]}
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    return found


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
    """How far a rank of a host came, by the line of its end; ``whole`` where that was the end of its program.

    ``left`` tells what ended it before the last line of its script; None where nothing did.
    """

    rank: int
    host: str
    steps: int
    whole: bool
    loaded: tuple[str, ...] = ()
    left: Left | None = None


def ends_from(lines: Iterable[str]) -> dict[int, End]:
    """Return how each rank came to its end, by the last lines of the hosts."""
    found: dict[int, End] = {}
    for line in lines:
        try:
            data = json.loads(line)
            files = [(int(rank), str(path)) for rank, path in data["loaded"]]
            left = {int(rank): _left(int(rank), *told) for rank, *told in data.get("by", [])}
            for rank, steps, whole in data["ended"]:
                own = tuple(dict.fromkeys(path for each, path in files if each == rank))
                found[int(rank)] = End(int(rank), str(data["host"]), int(steps), bool(whole), own, left.get(int(rank)))
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    return found


def _left(rank: int, by: Any, handled: Any, *line: Any) -> Left:
    site = Site(str(line[0]), int(line[1]), str(line[2])) if line else None
    return Left(pid=0, time=0.0, rank=rank, site=site, ended=True, by=str(by), handled=str(handled))


def stalled_from(lines: Iterable[str], *, whole: bool = True) -> Stalled | None:
    """Put the last lines of all hosts together; None unless all ranks of the world stood or waited at one moment.

    Not ``whole``: where some ranks are on none of these hosts, those that are have all waited at one moment.
    """
    hosts: dict[str, tuple[float, int, tuple[Position, ...]]] = {}
    for line in lines:
        if (told := _read(line)) is not None:
            hosts[told[0]] = told[1:]
    hosts = {host: told for host, told in hosts.items() if told[2]}
    ranks = sorted((rank for _, _, each in hosts.values() for rank in each), key=lambda rank: rank.rank)
    worlds = {world for _, world, _ in hosts.values()}
    if len(hosts) < 2 or len(worlds) != 1:  # noqa: PLR2004 - several
        return None
    (world,) = worlds
    there = [each.rank for each in ranks]
    some = sorted({*there}) == there and {*there} < {*range(world)}
    waits = all(each.doing is Doing.WAITING for each in ranks)
    if not (there == list(range(world)) if whole else some and waits):
        return None
    began = max(at - min(each.seconds for each in positions) for at, _, positions in hosts.values())
    last = min(at for at, _, _ in hosts.values())
    if began > last:
        return None  # one host's ranks had gone on, perhaps, before the other's came to wait
    return Stalled(pid=0, time=last, ranks=tuple(ranks), world_size=world, outside=True)


def _read(line: str) -> tuple[str, float, int, tuple[Position, ...]] | None:
    """Return what one line tells; None of ranks that were ended where they stood, which the line before it tells."""
    try:
        data = json.loads(line)
        positions = tuple(_position(*each) for each in data["ranks"])
        awaits = {
            int(rank): Awaited(str(what), str(mend), str(run)) for rank, what, mend, run in data.get("awaits", ())
        }
        positions = tuple(replace(each, awaited=awaits.get(each.rank)) for each in positions)
        ended = {int(rank) for rank, _, whole in data.get("ended", ()) if whole}
        if "ended" in data and ended <= {int(rank) for rank, *_ in data.get("by", ())}:
            return None
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
