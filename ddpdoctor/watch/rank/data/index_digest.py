"""The list by which a data set says which sample an index is, as digests that ranks can compare."""

from __future__ import annotations

import ctypes
import hashlib
import heapq
import math
import os
import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from zlib import crc32

LISTED = 200_000  # entries of a list: more would cost a good part of a second
ROWS = 20_000  # of an array
NUMBERS = 4_000_000  # of an array
LEAST = 64  # entries of a list that stand for all of them
MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Listing:
    """A list that says which sample an index is: its name, a digest, one without regard to order, the first entries.

    ``least`` are the entries, as numbers, whose hash is the least: two lists have some of them in common where they
    have entries in common, in the same proportion. There are none where entries repeat: what occurs several times in
    one share, such as who likes what, occurs in several shares as well.
    """

    name: str = ""
    listed: str = ""
    members: str = ""
    first: tuple[str, ...] = ()
    least: tuple[int, ...] = ()


def picks(dataset: Any) -> Listing:
    """Digest the indices of a Subset, and those of a part of Hugging Face's datasets; nothing for other data sets."""
    from torch.utils.data import Subset

    table = mapping(dataset)
    if table is None and type(dataset) is not Subset:
        return Listing()
    indices = array("q", map(int, dataset.indices if table is None else table.column(0).to_pylist()))
    return Listing("indices", _digest(indices), "", tuple(map(str, indices[:4])), _least(indices))


def mapping(dataset: Any) -> Any:
    """Return the table of rows that a part of a data set of Hugging Face's consists of; None for all else."""
    module = sys.modules.get("datasets.arrow_dataset")
    if module is None or not isinstance(dataset, module.Dataset):
        return None
    table = getattr(dataset, "_indices", None)
    return table if table is not None and table.num_rows <= LISTED else None


def table_behind(dataset: Any) -> str:
    """Digest a few rows of the table that a part of a data set of Hugging Face's is taken from."""
    table = dataset._data  # noqa: SLF001 - it has no other name
    rows = table.num_rows
    places = sorted({place * rows // LEAST for place in range(LEAST)}) if rows else []
    told = [rows, table.column_names, *(table.slice(at, 1).to_pydict() for at in places[: LEAST // 4])]
    return hashlib.blake2b(repr(told).encode(), digest_size=8).hexdigest()


def listing(dataset: Any) -> Listing:
    """Digest the first list, or array, of a data set's that has an entry for each sample; nothing without one.

    Entries without a text must all be different, so that they stand for samples.
    """
    held = sorted(getattr(dataset, "__dict__", {}).items())
    found = [(name, value, entries) for name, value in held if (entries := _entries(value, dataset)) is not None]
    found.sort(key=lambda each: not _is_text(each[2]))
    for name, value, entries in found:
        sums = array("Q", (crc32(each if isinstance(each, bytes) else repr(each).encode()) for each in entries))
        differ = len(set(sums)) == len(sums)
        if differ or _is_text(entries):
            first = tuple(_shown(value, at) for at in range(min(4, len(sums))))
            least = _least(sums) if differ else ()
            return Listing(name, _digest(sums), _digest(array("Q", sorted(sums))), first, least)
    return Listing()


def _is_text(entries: Any) -> bool:
    return isinstance(entries, list) and _has_text(entries[0])


def _entries(value: Any, dataset: Any) -> list[Any] | Iterator[bytes] | None:  # noqa: PLR0911 - a case a kind
    """Return what a data set holds of each of its samples, in an attribute; None where it is something else."""
    if type(value) is tuple and value and all(hasattr(each, "untyped_storage") for each in value):  # a TensorDataset's
        value = value[-1:] if _stand_for_samples(value[-1]) and len(value[-1]) == len(dataset) else value[0]
        if type(value) is tuple:
            return rows_of(value[0])
    if isinstance(value, list):
        if not 1 < len(value) <= LISTED or len(value) != len(dataset):
            return None
        first = _numbers(value[0])
        if first is None:
            return value if _has_text(value[0]) or _is_plain(value[0]) else None
        return _rows(value) if first.numel() * len(value) <= NUMBERS else None
    kinds = (sys.modules.get("torch"), "Tensor"), (sys.modules.get("numpy"), "ndarray")
    if not any(module is not None and type(value) is getattr(module, kind) for module, kind in kinds):
        return None
    if getattr(getattr(value, "device", "cpu"), "type", "cpu") != "cpu" or getattr(value, "is_sparse", False):
        return None
    shape = tuple(value.shape)
    if len(shape) <= 1 or not 1 < shape[0] <= ROWS or shape[0] != len(dataset) or math.prod(shape) > NUMBERS:
        return None  # one number a sample is a label
    if not hasattr(value, "detach"):
        return (row.tobytes() for row in value)
    return rows_of(value) if math.prod(shape) else None


def _stand_for_samples(targets: Any) -> bool:
    """Whether there is one number a sample, and none twice: what inputs are scaled by does not change it."""
    plain = targets.ndim == 1 and targets.is_floating_point() and targets.device.type == "cpu"
    return plain and 1 < len(targets) <= LISTED and len(targets.unique()) == len(targets)


def _numbers(entry: Any) -> Any:
    """Return the tensor on the CPU with several numbers that an entry is, or that comes first in it; None without."""
    torch = sys.modules["torch"]
    values = entry.values() if isinstance(entry, dict) else entry if isinstance(entry, (tuple, list)) else (entry,)
    for value in list(values)[:4]:
        if type(value) is torch.Tensor:
            told = value.device.type == "cpu" and value.layout is torch.strided and value.numel() > 1
            return value if told else None
    return None


def _rows(value: list[Any]) -> Iterator[bytes]:
    """Yield the bytes of the tensor of each entry; the place, where an entry has none."""
    for at, entry in enumerate(value):
        numbers = _numbers(entry)
        yield repr(at).encode() if numbers is None else bytes_of(numbers)


def rows_of(tensor: Any) -> Iterator[bytes]:
    """Yield the bytes of each part of a tensor on the CPU, along its first dimension; nothing of an empty one."""
    data = bytes_of(tensor)
    width = len(data) // len(tensor) if data else 1
    return (data[at : at + width] for at in range(0, len(data), width))


def bytes_of(tensor: Any) -> bytes:
    """Return the bytes of a tensor on the CPU, of whatever type, and whether numpy is installed or not."""
    whole = tensor.detach().contiguous()
    return ctypes.string_at(whole.data_ptr(), whole.numel() * whole.element_size())


def _is_plain(entry: Any) -> bool:
    """Whether an entry holds several numbers: one alone may be a label, or an index."""
    return (
        isinstance(entry, (tuple, list))
        and bool(entry)
        and all(isinstance(each, (int, float)) or _is_plain(each) for each in entry)
    )


def _shown(value: Any, at: int) -> str:
    numbers = _numbers(value[at]) if isinstance(value, list) else None
    if isinstance(value, list) and numbers is None:
        return str(value[at])[-60:]
    row = (numbers if numbers is not None else (value[0] if type(value) is tuple else value)[at]).flatten()[:3].tolist()
    return f"({', '.join(format(each, '.4g') for each in row)}, ...)"


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
