"""Ranks that torch.multiprocessing has started: no variable tells their rank, but their stacks do.

Where several hosts each spawn some, a script counts on from its node's number. That, and how many nodes there are,
stands in an option, in a variable, or in what the user's functions hold; and ranks of other hosts share the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.stuck.looks.spy import Stack, stacks
from ddpdoctor.stuck.ranks.identity import Identity
from ddpdoctor.stuck.ranks.self_told import SIZES, ends_of, options_of, variables_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ddpdoctor.stuck.ranks.processes import Python

FILE = "torch/multiprocessing/spawn.py"
GLOBAL = ("global_rank", "world_rank", "dist_rank", "ddp_rank", "rank")
"""Names that a function holds the rank among all hosts by; ``rank`` can as well be that on this host."""
NODES = ("nnodes", "nodes", "num_nodes", "n_nodes", "num_machines")
NODE = ("node_rank", "machine_rank", "node_id", "nr")
"""Options of a script that is started once on each node."""


def spawned(pythons: Mapping[int, Python]) -> dict[int, Identity]:
    """Return the ranks of mp.spawn among the processes that no launcher has told a rank, by pid."""
    suspects = [
        each for each in pythons.values() if each.parent in pythons and _tells_nothing(each, pythons) and each.has_torch
    ]
    looked = stacks([*(each.pid for each in suspects), *{each.parent for each in suspects}])
    found = {}
    for each in suspects:
        number = variable(looked.read.get(each.pid), "_wrap", "i")
        size = variable(looked.read.get(each.parent), "start_processes", "nprocs")
        if number is not None:
            siblings = sum(other.parent == each.parent for other in suspects)
            here = size if size is not None else max(siblings, number + 1)
            held = variables_of(looked.read.get(each.pid))
            node, nodes = _node_of(each, pythons[each.parent], held, (number, here))
            found[each.pid] = Identity(
                node * here + number, nodes * here, number, here, _address(each), f"PID {each.parent}"
            )
    return found


def _node_of(rank: Python, parent: Python, held: Mapping[str, int], spawned: tuple[int, int]) -> tuple[int, int]:
    """Return the number of this node, and how many there are, as far as anything tells: one where nothing does.

    ``spawned`` are the number of the rank on this host, and how many there are here.
    """
    number, here = spawned
    options, (others, serves) = options_of(parent.command), _other_hosts(rank)
    own = next((held[name] for name in GLOBAL if name in held and held[name] % here == number), -1)
    world = max((held[name] for name in SIZES if name in held), default=0)
    told = next((options[name] for name in NODES if name in options), _number(rank.environ.get("NNODES")))
    nodes = max(1, -(-world // here), told or 0, 1 + others, 1 + own // here)
    node = next((options[name] for name in NODE if name in options), _number(rank.environ.get("NODE_RANK")))
    if node is None:
        node = own // here if own >= here else 0 if serves or not others else 1
    return (node, nodes) if node < nodes else (0, 1)


def _other_hosts(rank: Python) -> tuple[int, bool]:
    """Return how many other hosts share the store with a rank, as far as it is connected, and whether it serves it."""
    port, ends = _number(rank.environ.get("MASTER_PORT")), ends_of(rank.pid)
    return len({there for here, there, to in ends.elsewhere if port in {here, to}}), port in ends.listens


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() else None


def _tells_nothing(each: Python, pythons: Mapping[int, Python]) -> bool:
    return each.identity is None or each.identity == pythons[each.parent].identity


def _address(each: Python) -> str:
    host, port = each.environ.get("MASTER_ADDR", ""), each.environ.get("MASTER_PORT", "")
    return f"{host}:{port}" if host and port else ""


def variable(stack: Stack | None, function: str, name: str) -> int | None:
    """Return an integer among the variables of a function of torch's spawn; None where it is not being run."""
    for frame, values in _spawning(stack):
        if frame == function:
            return dict(values).get(name)
    return None


def _spawning(stack: Stack | None) -> Iterable[tuple[str, tuple[tuple[str, int], ...]]]:
    if stack is not None:
        for frame, values in zip(stack.frames, stack.values, strict=True):
            if frame.file.replace("\\", "/").endswith(FILE):
                yield frame.function, values
