"""Ranks that no launcher has told a rank: a script that sets it by itself, or reads it from an option.

Those that train together meet at one store: rank 0 listens at its port, and every rank, rank 0 among them, is connected
to it (torch/csrc/distributed/c10d/TCPStore.cpp). Which rank a process is, its options say, or its variables.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import psutil

from ddpdoctor.stuck.looks.spy import Stack, stacks
from ddpdoctor.stuck.ranks.identity import Identity
from ddpdoctor.watch.user_frames import is_users

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ddpdoctor.stuck.ranks.processes import Python

RANKS = ("global_rank", "world_rank", "dist_rank", "ddp_rank", "rank", "local_rank", "gpu", "device_id")
"""Names that scripts give the rank, the surest first."""
SIZES = ("world_size", "dist_world_size", "ddp_world_size", "world", "nprocs")
MEETS = ("torch/distributed/rendezvous.py", "_create_c10d_store")
PAIR = 2  # of ranks: where one is rank 0, the other is 1


class Ends(NamedTuple):
    """The TCP ports of a process: those that it listens on, and where it is connected to, with an address each.

    ``elsewhere`` are connections to other hosts: the port here, the address there, and the port there.
    """

    listens: frozenset[int]
    connected: frozenset[tuple[str, int]]
    elsewhere: frozenset[tuple[int, str, int]] = frozenset()


def self_told(pythons: Mapping[int, Python]) -> dict[int, Identity]:
    """Return the ranks that meet at the store of one of them, by pid; none where nothing tells which is which."""
    ends = {each.pid: ends_of(each.pid) for each in pythons.values() if each.identity is None and each.has_torch}
    found = _that_join(ends)
    for first, port in _stores(ends):
        together = [pid for pid, each in ends.items() if any(to == port for _, to in each.connected)]
        apart = [pid for pid in together if pythons[pid].parent not in together]  # a loader's worker has the same
        told = _told(first, port, {pid: pythons[pid] for pid in apart}) if first in apart else {}
        if any(each.world_size > 1 for each in told.values()):  # one alone can be what is left of several
            found |= told
    return found


def _that_join(pids: Iterable[int]) -> dict[int, Identity]:
    """Return the ranks that set out to meet, by what torch's own function was given, whether they meet or not."""
    found = {}
    for pid, stack in stacks(pids).read.items():
        for frame, values in zip(stack.frames, stack.values, strict=True):
            told = dict(values)
            if frame.file.endswith(MEETS[0]) and frame.function == MEETS[1] and told.keys() >= {"rank", "world_size"}:
                rank, size = told["rank"], told["world_size"]
                found[pid] = Identity(rank, size, address=f"port :{told.get('port', 0)}", run="by hand")
    return {pid: each for pid, each in found.items() if each.rank < each.world_size > 1}


def _stores(ends: Mapping[int, Ends]) -> Iterable[tuple[int, int]]:
    """Yield the processes that are connected to a port of their own, as rank 0 is to its store."""
    for pid, each in ends.items():
        own = sorted(port for _, port in each.connected if port in each.listens)
        yield from [(pid, own[0])] if own else []


def ends_of(pid: int) -> Ends:
    """Return the ports of a process; none where it cannot be looked into."""
    try:
        every = psutil.Process(pid).net_connections("tcp")
    except psutil.Error:
        return Ends(frozenset(), frozenset())
    listens = {each.laddr.port for each in every if each.status == psutil.CONN_LISTEN}
    made = [each for each in every if each.status == psutil.CONN_ESTABLISHED and each.raddr]
    connected = {(each.raddr.ip, each.raddr.port) for each in made}
    elsewhere = {(e.laddr.port, e.raddr.ip, e.raddr.port) for e in made if e.laddr.ip != e.raddr.ip}
    return Ends(frozenset(listens), frozenset(connected), frozenset(elsewhere))


def _told(first: int, port: int, ranks: Mapping[int, Python]) -> dict[int, Identity]:
    """Return the number of each rank, by what gives each one of its own, and rank 0 to the one that has the store."""
    looked = stacks(ranks).read
    options = {pid: options_of(each.command) for pid, each in ranks.items()}
    variables = {pid: variables_of(looked.get(pid)) for pid in ranks}
    numbers = _by_names(first, options) or _by_names(first, variables) or _as_a_pair(first, ranks)
    if not numbers:
        return {}
    said = [each[name] for each in (*options.values(), *variables.values()) for name in SIZES if name in each]
    size = max(len(numbers), max(numbers.values()) + 1, *(each for each in said if each > max(numbers.values())), 0)
    return {
        pid: Identity(number, size, address=f"127.0.0.1:{port}", run=f"PID {first}") for pid, number in numbers.items()
    }


def _by_names(first: int, known: Mapping[int, Mapping[str, int]]) -> dict[int, int]:
    for name in RANKS:
        numbers = {pid: each[name] for pid, each in known.items() if name in each}
        if len(numbers) == len(known) == len(set(numbers.values())) and numbers[first] == 0:
            return numbers
    return {}


def _as_a_pair(first: int, ranks: Iterable[int]) -> dict[int, int]:
    every = list(ranks)
    return {pid: int(pid != first) for pid in every} if len(every) == PAIR and first in every else {}


def options_of(command: str) -> dict[str, int]:
    """Return the options with a number, by names with underscores."""
    found = re.findall(r"--([\w-]+)[= ](\d+)(?=\s|$)", command)
    return {name.replace("-", "_"): int(value) for name, value in found}


def variables_of(stack: Stack | None) -> dict[str, int]:
    """Return what the user's functions that are being run hold under the names of a rank or a size."""
    found: dict[str, int] = {}
    for frame, values in zip(stack.frames, stack.values, strict=True) if stack else ():
        if is_users(frame.file):
            found = {**{name: value for name, value in values if name in {*RANKS, *SIZES}}, **found}
    return found
