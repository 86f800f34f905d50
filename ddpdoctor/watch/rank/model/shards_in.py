"""Counts what of a thing that is saved is this rank's part alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ddpdoctor.checkpoint.keys import WRAPPER_NAMES

DEEP = 4
MOST = 5000  # tensors that are looked at
OLD = ("ShardedTensor", "FlatParameter")
"""Kinds of FullyShardedDataParallel's sharded and local state dicts."""
PLAIN = ("Tensor", "Parameter")
WRAPPERS = re.compile(rf"^(?:_forward_module\.)?module\.|^_forward_module\.|(?:{'|'.join(WRAPPER_NAMES)})\.")


def shards_in(thing: Any) -> int:
    """Return how many tensors of a thing are split over ranks; nothing is communicated."""
    return sum(_is_part(each) for each, _ in zip(_tensors(thing, DEEP), range(MOST), strict=False))


def copies_in(thing: Any, parts: dict[str, tuple[int, ...]]) -> int:
    """Return how many plain tensors have the name of a sharded parameter, and the shape of this rank's part of it."""
    if not parts:
        return 0
    found = sum(
        type(each).__name__ in PLAIN and parts.get(bare(key)) == tuple(each.shape)
        for (key, each), _ in zip(_keyed(thing, DEEP), range(MOST), strict=False)
    )
    return found if 2 * found >= len(parts) else 0  # else the names agree by chance


def moments_in(thing: Any, own: set[int]) -> int:
    """Return how many tensors of a thing are among these: what an optimizer keeps of this rank's parts."""
    return sum(id(each) in own for each, _ in zip(_tensors(thing, DEEP), range(MOST), strict=False)) if own else 0


def emptied_in(thing: Any) -> tuple[int, int]:
    """Return how many tensors of a thing are empty, as ZeRO 3 leaves them between two uses, and how many there are."""
    found = [each for each, _ in zip(_tensors(thing, DEEP), range(MOST), strict=False)]
    return sum(tuple(each.shape) == (0,) for each in found), len(found)


def _keyed(thing: Any, depth: int) -> Iterator[tuple[str, Any]]:
    for key, each in list(thing.items()) if isinstance(thing, dict) and depth else ():
        if isinstance(each, dict):
            yield from _keyed(each, depth - 1)
        elif isinstance(key, str) and hasattr(each, "shape"):
            yield key, each


def bare(key: str) -> str:
    """Return a parameter's name without what wrappers put into it."""
    return WRAPPERS.sub("", key)


def _tensors(thing: Any, depth: int) -> Iterator[Any]:
    if isinstance(thing, dict) and depth:
        for each in list(thing.values()):
            yield from _tensors(each, depth - 1)
    elif isinstance(thing, (list, tuple)) and depth:
        for each in thing:
            yield from _tensors(each, depth - 1)
    elif hasattr(thing, "shape"):
        yield thing


def _is_part(tensor: Any) -> bool:
    if type(tensor).__name__ in OLD:
        return True
    mesh, placements = getattr(tensor, "device_mesh", None), getattr(tensor, "placements", ())
    return mesh is not None and any(
        placement.is_shard() and mesh.size(dimension) > 1 for dimension, placement in enumerate(placements)
    )
