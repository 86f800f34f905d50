"""The list by which a data set says which sample an index is, as digests that ranks can compare."""

from __future__ import annotations

import hashlib
import heapq
import os
from array import array
from dataclasses import dataclass
from typing import Any
from zlib import crc32

LISTED = 200_000  # entries of a list: more would cost a good part of a second
LEAST = 64  # entries of a list that stand for all of them
MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Listing:
    """A list that says which sample an index is: its name, a digest, one without regard to order, the first entries.

    ``least`` are the entries, as numbers, whose hash is the least: two lists have some of them in common where they
    have entries in common, in the same proportion.
    """

    name: str = ""
    listed: str = ""
    members: str = ""
    first: tuple[str, ...] = ()
    least: tuple[int, ...] = ()


def picks(dataset: Any) -> Listing:
    """Digest the indices of a Subset; nothing for other data sets."""
    from torch.utils.data import Subset

    if type(dataset) is not Subset:
        return Listing()
    indices = array("q", map(int, dataset.indices))
    return Listing("indices", _digest(indices), "", tuple(map(str, indices[:4])), _least(indices))


def listing(dataset: Any) -> Listing:
    """Digest the first list of a data set's that has an entry, with a text, for each sample; nothing without one."""
    for name, value in sorted(getattr(dataset, "__dict__", {}).items()):
        if isinstance(value, list) and 1 < len(value) <= LISTED and len(value) == len(dataset) and _has_text(value[0]):
            sums = array("Q", (crc32(repr(each).encode()) for each in value))
            first = tuple(str(each)[-60:] for each in value[:4])
            return Listing(name, _digest(sums), _digest(array("Q", sorted(sums))), first, _least(sums))
    return Listing()


def _least(numbers: array[int]) -> tuple[int, ...]:
    """Return the numbers whose hash is the least, least first; a list that is too long has none."""
    return tuple(heapq.nsmallest(LEAST, set(numbers), key=_mixed)) if len(numbers) <= LISTED else ()


def _mixed(number: int) -> int:
    """Return a hash of a number, from 0 to 2**64 - 1, that is the same in each process."""
    number = (number * 0x9E3779B97F4A7C15) & MASK
    return ((number ^ (number >> 29)) * 0xBF58476D1CE4E5B9) & MASK


def _digest(numbers: array[int]) -> str:
    return hashlib.blake2b(numbers.tobytes(), digest_size=8).hexdigest()


def _has_text(entry: Any) -> bool:
    return isinstance(entry, (str, os.PathLike)) or (isinstance(entry, (tuple, list)) and any(map(_has_text, entry)))
