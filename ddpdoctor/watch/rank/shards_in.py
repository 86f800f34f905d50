"""Counts what of a thing that is saved is this rank's part alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

DEEP = 4
MOST = 5000  # tensors that are looked at
OLD = ("ShardedTensor", "FlatParameter")
"""Kinds of FullyShardedDataParallel's sharded and local state dicts."""


def shards_in(thing: Any) -> int:
    """Return how many tensors of a thing are split over ranks; nothing is communicated."""
    return sum(_is_part(each) for each, _ in zip(_tensors(thing, DEEP), range(MOST), strict=False))


def emptied_in(thing: Any) -> tuple[int, int]:
    """Return how many tensors of a thing are empty, as ZeRO 3 leaves them between two uses, and how many there are."""
    found = [each for each, _ in zip(_tensors(thing, DEEP), range(MOST), strict=False)]
    return sum(tuple(each.shape) == (0,) for each in found), len(found)


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
