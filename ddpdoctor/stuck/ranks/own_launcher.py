"""Ranks of Lightning and Fabric, which start the others by themselves: the first rank's variables tell nothing of it.

Source: lightning/fabric/strategies/launchers/subprocess_script.py (2.6): children of the first rank of a host are told
MASTER_ADDR, MASTER_PORT, NODE_RANK, LOCAL_RANK from 1 on, and WORLD_SIZE.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ddpdoctor.stuck.ranks.identity import Identity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddpdoctor.stuck.ranks.processes import Python

TOLD = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE")


def with_children(pythons: Mapping[int, Python]) -> dict[int, Identity]:
    """Return the ranks of which the first one of the host has started the others, by pid."""
    children: dict[int, dict[int, Python]] = defaultdict(dict)
    for each in pythons.values():
        told = [each.environ.get(name, "") for name in TOLD]
        own = all(told) and all(text.isdecimal() for text in told[2:]) and not each.environ.get("RANK")
        if own and told[3] != "0" and each.parent in pythons and each.has_torch:
            children[each.parent][int(told[3])] = each
    found = {}
    for parent, ranks in children.items():
        first = pythons[parent]
        if first.identity is not None or first.environ.get("LOCAL_RANK") or not first.has_torch:
            continue
        one = next(iter(ranks.values())).environ
        size, node, world = max(ranks) + 1, int(one["NODE_RANK"]), int(one["WORLD_SIZE"])
        address = f"{one['MASTER_ADDR']}:{one['MASTER_PORT']}"
        for local, each in {0: first, **ranks}.items():
            rank = node * size + local
            if rank < world:
                found[each.pid] = Identity(rank, world, local, size, address, f"PID {parent}")
    return found
